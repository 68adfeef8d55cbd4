-- What the end of a run needs of its beginning: an agent may be changed while it works. One row for
-- each command of a run, by the key of its execution; gone when nothing is left to do.
CREATE TABLE heartbeat_run_commands (
  run_id TEXT NOT NULL REFERENCES heartbeat_runs (id) ON DELETE CASCADE,
  execution_key TEXT NOT NULL,
  adapter TEXT NOT NULL,
  input TEXT,
  -- It had said its last word, lived on, and was asked to end.
  end_asked_at BIGINT,
  created_at BIGINT NOT NULL,
  PRIMARY KEY (run_id, execution_key)
);
