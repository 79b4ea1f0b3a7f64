-- Searched texts have no accents, as `normalized_text` makes them.
UPDATE sessions SET searched = normalize(regexp_replace(normalize(searched, NFD), '[\u0300-\u036f]', '', 'g'), NFC)
    WHERE normalize(searched, NFD) ~ '[\u0300-\u036f]';
UPDATE messages SET searched = normalize(regexp_replace(normalize(searched, NFD), '[\u0300-\u036f]', '', 'g'), NFC)
    WHERE normalize(searched, NFD) ~ '[\u0300-\u036f]';
