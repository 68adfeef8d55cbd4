-- How much time has passed, counted by a clock that cannot be set (core/places/age.h), beside what the wall clock
-- said at that moment.
CREATE TABLE clock_marks (
  counted_us BIGINT NOT NULL PRIMARY KEY,
  wall_us BIGINT NOT NULL,
  boot_id TEXT NOT NULL,
  mono_us BIGINT NOT NULL
);
-- When somebody first looked at it: a salvage that nobody has seen is not removed by itself.
ALTER TABLE salvages ADD COLUMN seen_at BIGINT;
UPDATE salvages SET seen_at = applied_at;
DROP INDEX salvages_expiry_idx;
CREATE INDEX salvages_due_idx ON salvages (created_at) WHERE state <> 'saving';
