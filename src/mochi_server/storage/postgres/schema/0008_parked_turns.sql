-- Times at which parked turns continue without a decision.
CREATE INDEX sessions_parked ON sessions ((substring(metadata FROM '"pending_approval":\{"due":([0-9.]+)')::float8))
    WHERE metadata LIKE '%"pending_approval":%';
