-- congress_got_older_after_1993: The average age was 57.6 in January 2013 and 53.0 in January 1993. [silver]
SELECT AVG(age) FILTER (congress = 113) - AVG(age) FILTER (congress = 103) FROM rows;
-- congress_got_older_after_1981: The average age was 53.0 in January 1993 and 49.5 in January 1981. [silver]
SELECT AVG(age) FILTER (congress = 103) - AVG(age) FILTER (congress = 97) FROM rows;
-- democrats_are_older_in_2013: In the 113th Congress, Democrats average 59.6 years and Republicans 55.8. [silver]
SELECT AVG(age) FILTER (party = 'D') - AVG(age) FILTER (party = 'R') FROM rows WHERE congress = 113;
-- democrats_are_older_since_1995: Democrats have been older since the 104th Congress. [silver]
SELECT AVG(age) FILTER (party = 'D') - AVG(age) FILTER (party = 'R') FROM rows WHERE congress >= 104;
-- the_gap_of_the_parties_widened: That gap widened in the 112th and 113th Congresses. [silver]
SELECT (AVG(age) FILTER (party = 'D' AND congress >= 112) - AVG(age) FILTER (party = 'R' AND congress >= 112))
     - (AVG(age) FILTER (party = 'D' AND congress BETWEEN 104 AND 111) - AVG(age) FILTER (party = 'R' AND congress BETWEEN 104 AND 111)) FROM rows;
-- new_members_are_younger: New members are typically younger than incumbents. [silver]
SELECT AVG(age) FILTER (incumbent = 'Yes') - AVG(age) FILTER (incumbent = 'No') FROM rows;
-- new_members_are_younger_in_2013: In the 113th Congress, new members average 50.5 years and the others 59.2. [silver]
SELECT AVG(age) FILTER (incumbent = 'Yes') - AVG(age) FILTER (incumbent = 'No') FROM rows WHERE congress = 113;
-- congress_has_aged_since_2001: Congress has notably aged since 2001. [skelley]
SELECT AVG(age) FILTER (congress >= 107) - AVG(age) FILTER (congress < 107) FROM rows;
-- the_median_senator_until_1999: Until 1999 the median senator of a Congress was never older than 60. [skelley]
SELECT 60 - MAX(middle) FROM (SELECT MEDIAN(age) AS middle FROM rows WHERE chamber = 'senate' AND congress <= 105 GROUP BY congress);
-- the_median_representative_until_1999: And the median representative never older than 55. [skelley]
SELECT 55 - MAX(middle) FROM (SELECT MEDIAN(age) AS middle FROM rows WHERE chamber = 'house' AND congress <= 105 GROUP BY congress);
-- senators_are_older: In the 113th Congress, Representatives average 57.0 years and Senators 62.0. [crs]
SELECT AVG(age) FILTER (chamber = 'senate') - AVG(age) FILTER (chamber = 'house') FROM rows WHERE congress = 113;
-- republicans_hold_the_house: The House of the 113th Congress has more Republicans than Democrats. [crs]
SELECT AVG(CAST(party = 'R' AS INT)) - AVG(CAST(party = 'D' AS INT)) FROM rows WHERE chamber = 'house' AND congress = 113;
-- democrats_hold_the_senate: The Senate of the 113th Congress has more Democrats than Republicans. [crs]
SELECT AVG(CAST(party = 'D' AS INT)) - AVG(CAST(party = 'R' AS INT)) FROM rows WHERE chamber = 'senate' AND congress = 113;
