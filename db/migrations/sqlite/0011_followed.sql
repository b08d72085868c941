-- +goose Up

-- What becomes of an execution is told to those who wait for its end, and to the steps that mirror it: then it is followed.
ALTER TABLE executions RENAME COLUMN awaited TO followed;
UPDATE executions SET followed = 1 WHERE followed = 0 AND id IN (SELECT execution_id FROM flow_steps WHERE execution_id IS NOT NULL);
