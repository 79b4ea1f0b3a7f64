-- Tokens that the requests of API keys have used. The servers of the database add to the same rows.
CREATE TABLE usage (
    day date NOT NULL,
    key text NOT NULL,
    model text NOT NULL,
    requests bigint NOT NULL,
    prompt_tokens bigint NOT NULL,
    answer_tokens bigint NOT NULL,
    PRIMARY KEY (day, key, model)
);
