-- What a place of the built-in sandbox holds of this machine: a range of host ids that no other living
-- place has, and the snapshot it started from. Written with the intent, gone with the place.
CREATE TABLE sandboxes (
  place_id TEXT NOT NULL PRIMARY KEY,
  node_id TEXT NOT NULL,
  first_id BIGINT NOT NULL,
  n_ids BIGINT NOT NULL,
  snapshot_id TEXT,
  is_paused INTEGER NOT NULL DEFAULT 0,
  created_at BIGINT NOT NULL
);
CREATE UNIQUE INDEX sandboxes_ids_idx ON sandboxes (node_id, first_id);
CREATE INDEX sandboxes_snapshot_idx ON sandboxes (snapshot_id) WHERE snapshot_id IS NOT NULL;

-- Writable layers of sandboxes that were kept under a name. `making` and `deleting` are intents: whoever
-- finds one of an earlier instance of the daemon finishes it. `first_id` is the host id that root of the
-- sandbox had in it; `place_id` is where it is being made from.
CREATE TABLE snapshots (
  id TEXT NOT NULL PRIMARY KEY,
  company_id TEXT NOT NULL REFERENCES companies (id),
  name TEXT NOT NULL,
  state TEXT NOT NULL,
  parent_id TEXT REFERENCES snapshots (id),
  rootfs TEXT,
  place_id TEXT NOT NULL,
  lease_id TEXT NOT NULL,
  first_id BIGINT NOT NULL,
  bytes BIGINT NOT NULL DEFAULT 0,
  owner_instance TEXT NOT NULL,
  created_at BIGINT NOT NULL,
  updated_at BIGINT NOT NULL,
  UNIQUE (company_id, name)
);
CREATE INDEX snapshots_parent_idx ON snapshots (parent_id) WHERE parent_id IS NOT NULL;
CREATE INDEX snapshots_open_idx ON snapshots (state) WHERE state <> 'ready';
