-- +goose Up

-- What lists show of an approval, beside the rest of it.
ALTER TABLE waitpoints ADD COLUMN title TEXT;
ALTER TABLE waitpoints ADD COLUMN prompt TEXT;
UPDATE waitpoints SET title = approval::json ->> 'title', prompt = approval::json ->> 'prompt' WHERE approval IS NOT NULL;
