-- A run whose preparation failed for now (core/runs/run_postpone.c): why, when it is tried again, how often that has
-- been done, and for how many milliseconds it has been tried. The time in which no daemon ran does not count.
ALTER TABLE heartbeat_runs ADD COLUMN waiting_reason TEXT;
ALTER TABLE heartbeat_runs ADD COLUMN waiting_since BIGINT;
ALTER TABLE heartbeat_runs ADD COLUMN next_try_at BIGINT;
ALTER TABLE heartbeat_runs ADD COLUMN prepare_failures BIGINT NOT NULL DEFAULT 0;
ALTER TABLE heartbeat_runs ADD COLUMN waited_ms BIGINT NOT NULL DEFAULT 0;
