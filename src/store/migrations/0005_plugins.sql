-- Plugins: what was fetched, what runs, and the plugin-wide configuration.
-- `install_id` names the directory beneath the plugin directory that holds a package from npm; a local
-- package has a `package_path` instead. `checksum` is over all files that are run. `pending` is an
-- upgrade that waits for approval, as JSON. Each change of a row is a compare-and-set on `updated_at`.
ALTER TABLE plugins ADD COLUMN install_id TEXT;
ALTER TABLE plugins ADD COLUMN package_version TEXT;
ALTER TABLE plugins ADD COLUMN checksum TEXT;
ALTER TABLE plugins ADD COLUMN pending TEXT;
CREATE INDEX plugins_status_idx ON plugins (status);

-- Fetches under way: written before npm is started, gone with the row that uses what it fetched. What an
-- earlier instance of the daemon left here is removed, files and all.
CREATE TABLE plugin_installs (
  id TEXT NOT NULL PRIMARY KEY,
  package_name TEXT NOT NULL,
  owner_instance TEXT NOT NULL,
  created_at BIGINT NOT NULL
);

CREATE TABLE plugin_config (
  plugin_id TEXT NOT NULL PRIMARY KEY REFERENCES plugins (id) ON DELETE CASCADE,
  id TEXT NOT NULL,
  config_json TEXT NOT NULL DEFAULT '{}',
  last_error TEXT,
  created_at BIGINT NOT NULL,
  updated_at BIGINT NOT NULL
);
