-- Where work is done that names no environment. NULL: nowhere, and such work fails. Companies from
-- before have none; migrate_0010() writes their local environment into the agents that ran there.
ALTER TABLE companies ADD COLUMN default_environment_id TEXT REFERENCES environments (id);
CREATE INDEX companies_environment_idx ON companies (default_environment_id)
  WHERE default_environment_id IS NOT NULL;
