-- A company or an agent that is being deleted with its history (core/companies/erase.c): since when.
ALTER TABLE companies ADD COLUMN erasing_at BIGINT;
ALTER TABLE agents ADD COLUMN erasing_at BIGINT;

-- Entries of the audit trail outlive their company.
CREATE TABLE activity_kept (
  id TEXT NOT NULL PRIMARY KEY,
  company_id TEXT NOT NULL,
  actor_type TEXT NOT NULL DEFAULT 'system',
  actor_id TEXT NOT NULL,
  action TEXT NOT NULL,
  entity_type TEXT NOT NULL,
  entity_id TEXT NOT NULL,
  agent_id TEXT,
  run_id TEXT,
  details TEXT,
  created_at BIGINT NOT NULL
);
INSERT INTO activity_kept SELECT id, company_id, actor_type, actor_id, action, entity_type, entity_id, agent_id, run_id,
  details, created_at FROM activity_log;
DROP TABLE activity_log;
ALTER TABLE activity_kept RENAME TO activity_log;
CREATE INDEX activity_log_company_idx ON activity_log (company_id, created_at);
CREATE INDEX activity_log_entity_idx ON activity_log (entity_id, created_at);
CREATE INDEX activity_log_type_idx ON activity_log (company_id, entity_type, created_at);
CREATE INDEX activity_log_agent_idx ON activity_log (agent_id, created_at) WHERE agent_id IS NOT NULL;
CREATE INDEX activity_log_run_idx ON activity_log (run_id) WHERE run_id IS NOT NULL;
