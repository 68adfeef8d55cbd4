// Which sandboxes there are, and whose: Cloudflare has no list of them. One Durable Object for the whole Worker.
import { DurableObject } from "cloudflare:workers";

export class LeaseIndex extends DurableObject {
  constructor(state, env) {
    super(state, env);
    this.sql = state.storage.sql;
    this.sql.exec("CREATE TABLE IF NOT EXISTS leases (id TEXT PRIMARY KEY, instance TEXT, place TEXT)");
  }

  put(id, owner) {
    this.sql.exec("INSERT OR REPLACE INTO leases VALUES (?, ?, ?)", id, owner?.instance ?? null, owner?.place ?? null);
  }

  remove(id) {
    this.sql.exec("DELETE FROM leases WHERE id = ?", id);
  }

  has(id) {
    return this.sql.exec("SELECT 1 FROM leases WHERE id = ?", id).toArray().length > 0;
  }

  list() {
    return this.sql.exec("SELECT id, instance, place FROM leases ORDER BY id LIMIT 10000").toArray();
  }
}

export const leaseIndex = (binding) => binding.get(binding.idFromName("leases"));
