-- Secrets: what has to outlive a crash in the middle of making or removing one.
--
-- `original_key` and `original_name` are what a removed secret was called: the vault knows it by them.
-- `reserved_by` is the daemon process that is making the secret (or the version); NULL once that is
-- done. `owner_environment_id` is the environment whose configuration made the secret, which goes with
-- it unless somebody else uses it.
ALTER TABLE company_secrets ADD COLUMN original_key TEXT;
ALTER TABLE company_secrets ADD COLUMN original_name TEXT;
ALTER TABLE company_secrets ADD COLUMN reserved_by TEXT;
ALTER TABLE company_secrets ADD COLUMN owner_environment_id TEXT;
ALTER TABLE company_secret_versions ADD COLUMN reserved_by TEXT;
CREATE INDEX company_secrets_reserved_idx ON company_secrets (reserved_by) WHERE reserved_by IS NOT NULL;
CREATE INDEX company_secrets_owner_idx ON company_secrets (owner_environment_id)
  WHERE owner_environment_id IS NOT NULL;
CREATE INDEX company_secret_versions_reserved_idx ON company_secret_versions (reserved_by)
  WHERE reserved_by IS NOT NULL;
CREATE INDEX company_secret_bindings_target_idx ON company_secret_bindings (target_type, target_id);
CREATE INDEX company_secrets_config_idx ON company_secrets (provider_config_id)
  WHERE provider_config_id IS NOT NULL;
