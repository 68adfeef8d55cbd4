-- Runs of agents. `status` is what the world sees; `step` is what is left to do: a run that was
-- cancelled is terminal at once, and still has a command to end and a lease to give up.
--
--   queued      nothing was done yet
--   preparing   claimed: a place is leased, the workspace brought in, the command recorded
--   executing   the command runs, or has ended and nobody looked yet
--   finishing   it ended: the workspace is brought home, the outcome decided
--   releasing   the outcome is recorded; leases are given up
--   done        nothing is left
--
-- `owner` is the instance of the daemon that works on it; another instance takes over what an
-- earlier one left. A run id is claimed once, ever: a retry is a new row with `retry_of_run_id`.
ALTER TABLE heartbeat_runs ADD COLUMN step TEXT NOT NULL DEFAULT 'queued';
ALTER TABLE heartbeat_runs ADD COLUMN owner TEXT;
ALTER TABLE heartbeat_runs ADD COLUMN issue_id TEXT;
ALTER TABLE heartbeat_runs ADD COLUMN task_key TEXT;
ALTER TABLE heartbeat_runs ADD COLUMN environment_id TEXT;
ALTER TABLE heartbeat_runs ADD COLUMN lease_id TEXT;
ALTER TABLE heartbeat_runs ADD COLUMN execution_id TEXT;
ALTER TABLE heartbeat_runs ADD COLUMN callback_port BIGINT;
ALTER TABLE heartbeat_runs ADD COLUMN cancel_requested_at BIGINT;
ALTER TABLE heartbeat_runs ADD COLUMN session_id_before TEXT;
ALTER TABLE heartbeat_runs ADD COLUMN session_id_after TEXT;
ALTER TABLE heartbeat_runs ADD COLUMN log_ref TEXT;
ALTER TABLE heartbeat_runs ADD COLUMN log_bytes BIGINT;
ALTER TABLE heartbeat_runs ADD COLUMN log_sha256 TEXT;
ALTER TABLE heartbeat_runs ADD COLUMN stdout_excerpt TEXT;
ALTER TABLE heartbeat_runs ADD COLUMN stderr_excerpt TEXT;
ALTER TABLE heartbeat_runs ADD COLUMN last_output_stream TEXT;
ALTER TABLE heartbeat_runs ADD COLUMN last_output_bytes BIGINT;
ALTER TABLE heartbeat_runs ADD COLUMN scheduled_retry_at BIGINT;
ALTER TABLE heartbeat_runs ADD COLUMN scheduled_retry_attempt BIGINT NOT NULL DEFAULT 0;
ALTER TABLE heartbeat_runs ADD COLUMN scheduled_retry_reason TEXT;
-- When each part of it was over, for the timeline.
ALTER TABLE heartbeat_runs ADD COLUMN leased_at BIGINT;
ALTER TABLE heartbeat_runs ADD COLUMN staged_at BIGINT;
ALTER TABLE heartbeat_runs ADD COLUMN spawned_at BIGINT;
ALTER TABLE heartbeat_runs ADD COLUMN first_output_at BIGINT;
ALTER TABLE heartbeat_runs ADD COLUMN exited_at BIGINT;
ALTER TABLE heartbeat_runs ADD COLUMN restored_at BIGINT;
ALTER TABLE heartbeat_runs ADD COLUMN released_at BIGINT;
UPDATE heartbeat_runs SET step = 'done'
  WHERE status IN ('succeeded', 'failed', 'cancelled', 'timed_out');
CREATE INDEX heartbeat_runs_open_idx ON heartbeat_runs (step) WHERE step <> 'done';
CREATE INDEX heartbeat_runs_issue_idx ON heartbeat_runs (issue_id, created_at)
  WHERE issue_id IS NOT NULL;
CREATE INDEX heartbeat_runs_due_idx ON heartbeat_runs (scheduled_retry_at)
  WHERE status = 'scheduled_retry';

CREATE TABLE heartbeat_run_events (
  run_id TEXT NOT NULL REFERENCES heartbeat_runs (id) ON DELETE CASCADE,
  seq BIGINT NOT NULL,
  id TEXT NOT NULL,
  company_id TEXT NOT NULL,
  agent_id TEXT NOT NULL,
  event_type TEXT NOT NULL,
  stream TEXT,
  level TEXT,
  color TEXT,
  message TEXT,
  payload TEXT,
  created_at BIGINT NOT NULL,
  PRIMARY KEY (run_id, seq)
);

-- Why an agent was to work. One that was deferred waits for the run of its issue to end.
CREATE TABLE agent_wakeup_requests (
  id TEXT NOT NULL PRIMARY KEY,
  company_id TEXT NOT NULL REFERENCES companies (id) ON DELETE CASCADE,
  agent_id TEXT NOT NULL REFERENCES agents (id) ON DELETE CASCADE,
  source TEXT NOT NULL,
  trigger_detail TEXT,
  reason TEXT,
  payload TEXT,
  status TEXT NOT NULL DEFAULT 'queued',
  coalesced_count BIGINT NOT NULL DEFAULT 0,
  requested_by_actor_type TEXT,
  requested_by_actor_id TEXT,
  idempotency_key TEXT,
  issue_id TEXT,
  run_id TEXT,
  error TEXT,
  requested_at BIGINT NOT NULL,
  claimed_at BIGINT,
  finished_at BIGINT
);
CREATE INDEX agent_wakeup_requests_deferred_idx ON agent_wakeup_requests (issue_id, requested_at)
  WHERE status = 'deferred_issue_execution';
CREATE INDEX agent_wakeup_requests_agent_idx ON agent_wakeup_requests (agent_id, requested_at);
CREATE UNIQUE INDEX agent_wakeup_requests_key_idx ON agent_wakeup_requests (agent_id, idempotency_key)
  WHERE idempotency_key IS NOT NULL;

-- Wake-ups look for a run of the agent that has not begun yet; schedules for when it was last due.
CREATE INDEX heartbeat_runs_waiting_idx ON heartbeat_runs (agent_id, created_at)
  WHERE step = 'queued';
CREATE TABLE agent_schedules (
  agent_id TEXT NOT NULL PRIMARY KEY REFERENCES agents (id) ON DELETE CASCADE,
  last_due_at BIGINT NOT NULL
);
-- What somebody decided about a run that is silent.
CREATE TABLE heartbeat_run_decisions (
  id TEXT NOT NULL PRIMARY KEY,
  run_id TEXT NOT NULL REFERENCES heartbeat_runs (id) ON DELETE CASCADE,
  company_id TEXT NOT NULL,
  decision TEXT NOT NULL,
  reason TEXT,
  snoozed_until BIGINT,
  evaluation_issue_id TEXT,
  created_by_agent_id TEXT,
  created_by_user_id TEXT,
  created_by_run_id TEXT,
  created_at BIGINT NOT NULL
);
CREATE INDEX heartbeat_run_decisions_idx ON heartbeat_run_decisions (run_id, created_at);
CREATE INDEX activity_log_run_idx ON activity_log (run_id) WHERE run_id IS NOT NULL;
-- Leases of a whole company, as the page shows them.
CREATE INDEX environment_leases_company_idx ON environment_leases (company_id, last_used_at);
CREATE INDEX environment_leases_company_living_idx ON environment_leases (company_id, last_used_at)
  WHERE status = 'active' OR status = 'retained';
