-- Workspaces of leases: directories of the operator in places. A lease has at most one that has not
-- ended. `staging` and `restoring` are intents: whoever finds one that nobody works on takes it up.
-- `step` is how far a restore got (core/workspaces/workspace.h); `umask` is that of what was brought home;
-- `staged_ns` is the wall clock when staging began. What belongs to it on disk is workspaces/<id>.
CREATE TABLE workspaces (
  id TEXT NOT NULL PRIMARY KEY,
  company_id TEXT NOT NULL REFERENCES companies (id) ON DELETE CASCADE,
  lease_id TEXT NOT NULL,
  place_id TEXT NOT NULL,
  state TEXT NOT NULL,
  epoch BIGINT NOT NULL,
  step TEXT,
  way TEXT NOT NULL,
  isolation TEXT,
  local_path TEXT NOT NULL,
  target_path TEXT,
  exclude TEXT NOT NULL DEFAULT '[]',
  cwd TEXT,
  umask BIGINT NOT NULL DEFAULT 0,
  staged_ns BIGINT NOT NULL,
  files BIGINT NOT NULL DEFAULT 0,
  bytes BIGINT NOT NULL DEFAULT 0,
  sent_bytes BIGINT NOT NULL DEFAULT 0,
  restored_at BIGINT,
  report TEXT,
  note TEXT,
  attempts BIGINT NOT NULL DEFAULT 0,
  next_attempt_at BIGINT,
  owner_instance TEXT NOT NULL,
  created_at BIGINT NOT NULL,
  updated_at BIGINT NOT NULL
);
CREATE UNIQUE INDEX workspaces_living_idx ON workspaces (lease_id) WHERE state <> 'ended';
CREATE INDEX workspaces_place_idx ON workspaces (place_id) WHERE state <> 'ended';
CREATE INDEX workspaces_lease_idx ON workspaces (lease_id, created_at);

-- What was saved of a workspace before its place was given up: the changes are in salvage/<id>.
-- `saving` is an intent, one for a workspace at a time; `dropping` is one too.
CREATE TABLE salvages (
  id TEXT NOT NULL PRIMARY KEY,
  company_id TEXT NOT NULL REFERENCES companies (id) ON DELETE CASCADE,
  workspace_id TEXT NOT NULL,
  lease_id TEXT NOT NULL,
  environment_id TEXT NOT NULL,
  state TEXT NOT NULL,
  reason TEXT NOT NULL,
  local_path TEXT NOT NULL,
  exclude TEXT NOT NULL DEFAULT '[]',
  umask BIGINT NOT NULL DEFAULT 0,
  changes BIGINT NOT NULL DEFAULT 0,
  deletes BIGINT NOT NULL DEFAULT 0,
  bytes BIGINT NOT NULL DEFAULT 0,
  applied_at BIGINT,
  expires_at BIGINT NOT NULL,
  created_at BIGINT NOT NULL,
  updated_at BIGINT NOT NULL
);
CREATE UNIQUE INDEX salvages_saving_idx ON salvages (workspace_id) WHERE state = 'saving';
CREATE INDEX salvages_company_idx ON salvages (company_id, created_at);
CREATE INDEX salvages_expiry_idx ON salvages (expires_at);
