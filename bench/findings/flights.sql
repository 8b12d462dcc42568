-- evenings_are_late: Delays are longer from 17 o'clock on than before 10.
SELECT AVG(dep_delay) FILTER (CAST(hour AS INT) >= 17) - AVG(dep_delay) FILTER (CAST(hour AS INT) < 10) FROM rows;
-- summers_are_late: Delays are longer in June and July than from September to November.
SELECT AVG(dep_delay) FILTER (month IN ('6', '7')) - AVG(dep_delay) FILTER (month IN ('9', '10', '11')) FROM rows;
-- newark_is_late: Delays are longer at Newark than at La Guardia.
SELECT AVG(dep_delay) FILTER (origin = 'EWR') - AVG(dep_delay) FILTER (origin = 'LGA') FROM rows;
-- time_is_made_up: Flights arrive with less delay than they leave with.
SELECT AVG(dep_delay - arr_delay) FROM rows;
-- long_flights_make_up_more: Flights of more than 1,500 miles make up more than those of less than 500.
SELECT AVG(dep_delay - arr_delay) FILTER (distance > 1500) - AVG(dep_delay - arr_delay) FILTER (distance < 500) FROM rows;
-- regional_flights_are_late: ExpressJet is later than Delta.
SELECT AVG(dep_delay) FILTER (carrier = 'EV') - AVG(dep_delay) FILTER (carrier = 'DL') FROM rows;
-- summer_evenings_are_worse: The evening adds more delay in June and July than from September to November.
SELECT (AVG(dep_delay) FILTER (month IN ('6', '7') AND CAST(hour AS INT) >= 17) - AVG(dep_delay) FILTER (month IN ('6', '7') AND CAST(hour AS INT) < 10))
     - (AVG(dep_delay) FILTER (month IN ('9', '10', '11') AND CAST(hour AS INT) >= 17) - AVG(dep_delay) FILTER (month IN ('9', '10', '11') AND CAST(hour AS INT) < 10)) FROM rows;
-- jetblue_is_later_than_delta: From Kennedy, Delta's delays are shorter than JetBlue's.
SELECT AVG(dep_delay) FILTER (carrier = 'B6') - AVG(dep_delay) FILTER (carrier = 'DL') FROM rows WHERE origin = 'JFK';
-- long_flights_leave_from_kennedy: Flights from Kennedy are longer than those from La Guardia.
SELECT AVG(distance) FILTER (origin = 'JFK') - AVG(distance) FILTER (origin = 'LGA') FROM rows;
-- united_flies_farther: United flies farther than ExpressJet from Newark.
SELECT AVG(distance) FILTER (carrier = 'UA') - AVG(distance) FILTER (carrier = 'EV') FROM rows WHERE origin = 'EWR';
