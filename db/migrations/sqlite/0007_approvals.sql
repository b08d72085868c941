-- +goose Up

-- What lists show of an approval, beside the rest of it.
ALTER TABLE waitpoints ADD COLUMN title TEXT;
ALTER TABLE waitpoints ADD COLUMN prompt TEXT;
UPDATE waitpoints SET title = json_extract(approval, '$.title'), prompt = json_extract(approval, '$.prompt') WHERE approval IS NOT NULL;
