-- What forks of a sandbox stand on: its written files, workspace and /tmp, as they were. Such a row has no name of its
-- own (its id stands there) and goes when the last fork is gone. `fork_by` says how the files were taken; NULL: a
-- snapshot. `is_whole`: its workspace and /tmp do not stand on those of its parent.
ALTER TABLE snapshots ADD COLUMN fork_by TEXT;
ALTER TABLE snapshots ADD COLUMN is_whole INTEGER NOT NULL DEFAULT 0;
CREATE INDEX snapshots_fork_idx ON snapshots (state) WHERE fork_by IS NOT NULL;
