-- Whether output of the run's command is missing: what its log has is not all that was printed.
ALTER TABLE heartbeat_runs ADD COLUMN is_incomplete BIGINT NOT NULL DEFAULT 0;

-- Pages that hold nothing, for a full disk (store/disk_reserve.h): one row, or none.
CREATE TABLE disk_reserve (
  id BIGINT PRIMARY KEY CHECK (id = 1),
  filler TEXT NOT NULL
);
