-- congress_gets_older: Members are older since 2001 than in the twenty years before.
SELECT AVG(age) FILTER (congress >= 107) - AVG(age) FILTER (congress BETWEEN 97 AND 106) FROM rows;
-- senators_are_older: Senators are older than representatives.
SELECT AVG(age) FILTER (chamber = 'senate') - AVG(age) FILTER (chamber = 'house') FROM rows;
-- incumbents_are_older: Incumbents are older than new members.
SELECT AVG(age) FILTER (incumbent = 'Yes') - AVG(age) FILTER (incumbent = 'No') FROM rows;
-- democrats_are_older_now: Since 2009 Democrats are older than Republicans.
SELECT AVG(age) FILTER (party = 'D') - AVG(age) FILTER (party = 'R') FROM rows WHERE congress >= 111;
-- republicans_were_older: Before 1961 Republicans were older than Democrats.
SELECT AVG(age) FILTER (party = 'R') - AVG(age) FILTER (party = 'D') FROM rows WHERE congress < 87;
-- newcomers_get_older: New members are older since 2001 than from 1971 to 1990.
SELECT AVG(age) FILTER (congress >= 107) - AVG(age) FILTER (congress BETWEEN 92 AND 101) FROM rows WHERE incumbent = 'No';
-- the_south_turned: In five states of the South, Democrats became rarer after 1994.
SELECT AVG(CAST(party = 'D' AS INT)) FILTER (congress < 104) - AVG(CAST(party = 'D' AS INT)) FILTER (congress >= 104) FROM rows WHERE state IN ('TX', 'GA', 'AL', 'SC', 'MS');
-- republicans_won_the_house: In the House, Republicans became more frequent after 1994.
SELECT AVG(CAST(party = 'R' AS INT)) FILTER (congress >= 104) - AVG(CAST(party = 'R' AS INT)) FILTER (congress < 104) FROM rows WHERE chamber = 'house';
-- california_grew: California has a larger share of the members since 1993 than before 1963.
SELECT AVG(CAST(state = 'CA' AS INT)) FILTER (congress >= 103) - AVG(CAST(state = 'CA' AS INT)) FILTER (congress < 88) FROM rows;
-- the_chambers_came_apart: Senators are older than representatives by more since 2001 than before 1981.
SELECT (AVG(age) FILTER (chamber = 'senate' AND congress >= 107) - AVG(age) FILTER (chamber = 'house' AND congress >= 107))
     - (AVG(age) FILTER (chamber = 'senate' AND congress < 97) - AVG(age) FILTER (chamber = 'house' AND congress < 97)) FROM rows;
