-- Turns of API keys with limits. A crash of the database removes them, as it removes the processes.
CREATE UNLOGGED TABLE key_turns (
    key text PRIMARY KEY,               -- name of the API key
    running text[] NOT NULL,            -- running turns, as `<process>/<turn>`
    began double precision[] NOT NULL   -- Unix times in seconds at which turns of the last minute began
);
