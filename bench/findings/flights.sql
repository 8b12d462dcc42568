-- later_arrivals_follow_later_departures: As departure delays increase, arrival delays do (Alaska Airlines). [moderndive]
SELECT CORR(dep_delay, arr_delay) FROM rows WHERE carrier = 'AS';
-- newark_before_kennedy: Newark had more departures than Kennedy. [moderndive]
SELECT AVG(CAST(origin = 'EWR' AS INT)) - AVG(CAST(origin = 'JFK' AS INT)) FROM rows;
-- kennedy_before_la_guardia: Kennedy had more departures than La Guardia. [moderndive]
SELECT AVG(CAST(origin = 'JFK' AS INT)) - AVG(CAST(origin = 'LGA' AS INT)) FROM rows;
-- united_jetblue_expressjet: United, JetBlue and ExpressJet had the most flights: the third more than Delta, the fourth. [moderndive]
SELECT LEAST(AVG(CAST(carrier = 'UA' AS INT)), AVG(CAST(carrier = 'B6' AS INT)), AVG(CAST(carrier = 'EV' AS INT))) - AVG(CAST(carrier = 'DL' AS INT)) FROM rows;
-- time_is_made_up: The average gain, departure delay minus arrival delay, is 5 minutes. [moderndive]
SELECT AVG(dep_delay - arr_delay) FROM rows;
-- hawaii_is_farther_than_seattle: Flights of Hawaiian Airlines are in the air for longer than those of Alaska Airlines. [moderndive]
SELECT AVG(air_time) FILTER (carrier = 'HA') - AVG(air_time) FILTER (carrier = 'AS') FROM rows;
-- early_flights_are_less_late: The earlier a flight is scheduled, the lower its expected delay. [solutions]
SELECT CORR(CAST(hour AS INT), arr_delay) FROM rows;
-- cancellations_accumulate: Cancellations accumulate over the day until 8 pm. [r4ds]
SELECT AVG(CAST(dep_delay IS NULL AS INT)) FILTER (CAST(hour AS INT) BETWEEN 14 AND 19) - AVG(CAST(dep_delay IS NULL AS INT)) FILTER (CAST(hour AS INT) < 10) FROM rows;
-- very_late_flights_leave: Very late flights are much less likely to be cancelled. [r4ds]
SELECT AVG(CAST(dep_delay IS NULL AS INT)) FILTER (CAST(hour AS INT) BETWEEN 18 AND 20) - AVG(CAST(dep_delay IS NULL AS INT)) FILTER (CAST(hour AS INT) > 21) FROM rows;
-- the_median_is_smaller: The median departure delay is smaller than the mean. [r4ds]
SELECT AVG(dep_delay) - MEDIAN(dep_delay) FROM rows;
-- delays_grow_up_to_750_miles: Delays increase with distance up to 750 miles. [r4ds1]
SELECT AVG(arr_delay) FILTER (distance BETWEEN 500 AND 750) - AVG(arr_delay) FILTER (distance < 250) FROM rows;
-- and_then_shrink: Beyond 750 miles they decrease. [r4ds1]
SELECT AVG(arr_delay) FILTER (distance BETWEEN 500 AND 750) - AVG(arr_delay) FILTER (distance > 1500) FROM rows;
-- summers_are_busy: There are more flights in summer (May to September) than in January. [r4ds1]
SELECT AVG(CAST(month IN ('5', '6', '7', '8', '9') AS INT)) / 5 - AVG(CAST(month = '1' AS INT)) FROM rows;
