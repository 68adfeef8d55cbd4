-- Commands that ran or run in leases. Written before the command is started and when it has ended; what
-- happens in between is the box's to know. Variables of the command are not kept: they may be secrets.
CREATE TABLE executions (
  id TEXT NOT NULL PRIMARY KEY,
  company_id TEXT NOT NULL REFERENCES companies (id) ON DELETE CASCADE,
  lease_id TEXT NOT NULL REFERENCES environment_leases (id) ON DELETE CASCADE,
  place_id TEXT NOT NULL,
  command TEXT NOT NULL,
  args TEXT NOT NULL DEFAULT '[]',
  cwd TEXT,
  is_terminal INTEGER NOT NULL DEFAULT 0,
  timeout_ms BIGINT,
  idempotency_key TEXT,
  status TEXT NOT NULL,
  pid BIGINT,
  exit_code BIGINT,
  signal BIGINT,
  timed_out INTEGER NOT NULL DEFAULT 0,
  is_incomplete INTEGER NOT NULL DEFAULT 0,
  stdout_len BIGINT NOT NULL DEFAULT 0,
  stderr_len BIGINT NOT NULL DEFAULT 0,
  reason TEXT,
  started_at BIGINT,
  ended_at BIGINT,
  created_at BIGINT NOT NULL,
  updated_at BIGINT NOT NULL
);
CREATE INDEX executions_lease_idx ON executions (lease_id, created_at);
CREATE INDEX executions_open_idx ON executions (place_id) WHERE status = 'starting' OR status = 'running';
CREATE INDEX executions_ended_idx ON executions (ended_at) WHERE ended_at IS NOT NULL;
CREATE UNIQUE INDEX executions_key_idx ON executions (lease_id, idempotency_key)
  WHERE idempotency_key IS NOT NULL;
