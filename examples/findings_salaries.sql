-- Findings about the generated university in SQL: each statement stands under its name and gives one value, true or
-- false or a signed effect.
--
--   deniable world make salaries -o university
--   deniable parity examples/findings_salaries.sql -p university/policy.yaml --epsilon 1,4 --runs 20

-- faculty_earn_more_than_staff: Faculty are paid more than staff (difference of means).
SELECT avg(salary) FILTER (job = 'faculty') - avg(salary) FILTER (job = 'staff') FROM salaries;

-- most_are_faculty: More than half of the employees are faculty (a share).
SELECT count(*) FILTER (job = 'faculty') * 2 > count(*) FROM salaries;

-- pay_follows_service: Salaries grow with the days of service (a regression coefficient).
SELECT regr_slope(salary, DATE '2026-01-01' - hired) FROM salaries;

-- women_long_in_athletics_earn_less: In athletics, after ten years, women earn less (three columns together).
SELECT avg(salary) FILTER (sex = 'M') - avg(salary) FILTER (sex = 'F')
FROM salaries WHERE job = 'athletics' AND hired < DATE '2016-01-01';
