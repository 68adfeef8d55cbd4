-- How far a run got with its issue and which follow-up it was (core/runs/run_follow.c), why it is not tried again, and
-- what was last said about its silence (core/runs/run_silence.c).
ALTER TABLE heartbeat_runs ADD COLUMN liveness_state TEXT;
ALTER TABLE heartbeat_runs ADD COLUMN liveness_reason TEXT;
ALTER TABLE heartbeat_runs ADD COLUMN continuation_attempt BIGINT NOT NULL DEFAULT 0;
ALTER TABLE heartbeat_runs ADD COLUMN last_useful_action_at BIGINT;
ALTER TABLE heartbeat_runs ADD COLUMN retry_exhausted_reason TEXT;
ALTER TABLE heartbeat_runs ADD COLUMN silence_level TEXT;
ALTER TABLE heartbeat_runs ADD COLUMN silence_noted_at BIGINT;
