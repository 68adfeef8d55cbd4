-- Where this database is at home: the machine and the data directory, and who the node is there (daemon/home.h).
-- A copy that is started somewhere else finds that it is not at home. `machine` is a digest, empty where
-- the machine has no id; device numbers hold for one boot only.
CREATE TABLE database_home (
  singleton_key TEXT NOT NULL PRIMARY KEY,
  node_id TEXT NOT NULL,
  machine TEXT NOT NULL,
  boot_id TEXT NOT NULL,
  device BIGINT NOT NULL,
  inode BIGINT NOT NULL,
  taken_at BIGINT NOT NULL
);
