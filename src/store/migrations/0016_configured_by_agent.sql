-- Whose key last set what the agent runs, or where. What an agent's key wrote runs in isolated places
-- only; NULL: the board answers for it, which it does for what is there already.
ALTER TABLE agents ADD COLUMN configured_by_agent_id TEXT;
