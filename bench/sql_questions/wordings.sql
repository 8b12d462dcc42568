-- psql 1: by hand
SELECT sex, COUNT(*) AS n, AVG(age) AS mean FROM visits WHERE insured AND age >= 18 AND age <= 65 AND city IN ('Ada', 'Brin') GROUP BY sex;
-- psql 2: other order, an alias, ordinals
select v.sex, avg(v.age), count(*) from visits v where v.city in ('Brin', 'Ada') and 18 <= v.age and v.age <= 65 and v.insured group by 1 order by 1;
-- psql 3: BETWEEN and OR
SELECT sex, COUNT(1), AVG(age) FROM visits WHERE (city = 'Ada' OR city = 'Brin') AND age BETWEEN 18 AND 65 AND insured GROUP BY sex ORDER BY COUNT(1) DESC;
-- Superset 4: a virtual table and a row limit
SELECT sex AS sex, count(*) AS "COUNT(*)", AVG(age) AS "AVG(age)" FROM (SELECT * FROM visits) AS virtual_table WHERE insured AND age >= 18 AND age <= 65 AND city IN ('Ada', 'Brin') GROUP BY sex ORDER BY "COUNT(*)" DESC LIMIT 1000;
-- Superset 5: two virtual tables
SELECT sex AS sex, AVG(age) AS "AVG(age)", count(*) AS n FROM (SELECT * FROM (SELECT sex, age, city, insured FROM visits WHERE insured) AS a) AS virtual_table WHERE city IN ('Ada', 'Brin') AND age BETWEEN 18 AND 65 GROUP BY sex LIMIT 50000;
-- Superset 6: WHERE 1 = 1
SELECT sex, COUNT(*) AS count, AVG(age) AS mean FROM visits WHERE 1 = 1 AND (insured) AND (city IN ('Ada', 'Brin')) AND (age >= 18) AND (age <= 65) GROUP BY sex LIMIT 100;
-- Metabase 7: quoted names
SELECT "visits"."sex" AS "sex", COUNT(*) AS "count", AVG("visits"."age") AS "avg" FROM "visits" WHERE ("visits"."insured" AND ("visits"."age" >= 18) AND ("visits"."age" <= 65) AND (("visits"."city" = 'Ada') OR ("visits"."city" = 'Brin'))) GROUP BY "visits"."sex" ORDER BY "visits"."sex" ASC;
-- Metabase 8: nested source
SELECT "source"."sex" AS "sex", COUNT(*) AS "count", AVG("source"."age") AS "avg" FROM (SELECT "visits"."sex" AS "sex", "visits"."age" AS "age", "visits"."city" AS "city", "visits"."insured" AS "insured" FROM "visits") AS "source" WHERE "source"."insured" AND "source"."age" BETWEEN 18 AND 65 AND "source"."city" IN ('Ada', 'Brin') GROUP BY "source"."sex" LIMIT 10000;
-- Metabase 9: rounded
SELECT "sex", "count", ROUND("avg", 1) AS "avg" FROM (SELECT "sex", COUNT(*) AS "count", AVG("age") AS "avg" FROM "visits" WHERE "insured" AND "age" BETWEEN 18 AND 65 AND "city" IN ('Ada', 'Brin') GROUP BY "sex") AS "source";
-- Grafana 10: a metric column
SELECT sex AS metric, AVG(age) AS value, COUNT(*) AS n FROM visits WHERE city IN ('Ada','Brin') AND age >= 18 AND 65 >= age AND insured GROUP BY metric ORDER BY metric;
-- Grafana 11: largest first
SELECT sex AS metric, COUNT(*) AS value, AVG(age) AS mean FROM visits WHERE insured AND age <= 65 AND age >= 18 AND city IN ('Ada','Brin') GROUP BY sex ORDER BY value DESC LIMIT 5;
-- Grafana 12: totals of what was measured
SELECT SUM(n) AS value FROM (SELECT sex, COUNT(*) AS n, AVG(age) AS mean FROM visits WHERE insured AND age BETWEEN 18 AND 65 AND city IN ('Ada', 'Brin') GROUP BY sex) AS t;
-- Power BI 13: rows in brackets
select "_"."sex", count(1) as "C1", avg("_"."age") as "C2" from (select "$Table"."sex" as "sex", "$Table"."age" as "age", "$Table"."city" as "city", "$Table"."insured" as "insured" from "visits" "$Table") "_" where "_"."insured" and ("_"."age" >= 18 and "_"."age" <= 65) and ("_"."city" = 'Ada' or "_"."city" = 'Brin') group by "_"."sex" limit 1000001;
-- Power BI 14: filtered inside
select "rows"."sex" as "sex", avg("rows"."age") as "a0", count(*) as "a1" from (select "sex", "age" from "visits" where "insured" and "city" in ('Ada', 'Brin') and "age" between 18 and 65) "rows" group by "sex";
-- Power BI 15: without empty groups
SELECT "sex", "a0", "a1" FROM (SELECT "sex", COUNT(*) AS "a0", AVG("age") AS "a1" FROM "visits" WHERE "insured" AND "age" BETWEEN 18 AND 65 AND "city" IN ('Ada', 'Brin') GROUP BY "sex") AS "t" WHERE NOT ("a0" IS NULL) LIMIT 501;
-- Tableau 16: SUM(1)
SELECT "visits"."sex" AS "sex", AVG("visits"."age") AS "avg:age:ok", SUM(1) AS "cnt:visits:ok" FROM "visits" WHERE (("visits"."age" >= 18) AND ("visits"."age" <= 65) AND ("visits"."city" IN ('Ada', 'Brin')) AND "visits"."insured") GROUP BY 1;
-- Tableau 17: HAVING
SELECT "visits"."sex" AS "sex", COUNT(1) AS "cnt", AVG("visits"."age") AS "avg" FROM "visits" WHERE "visits"."insured" AND "visits"."age" BETWEEN 18 AND 65 AND "visits"."city" IN ('Ada', 'Brin') GROUP BY "visits"."sex" HAVING (COUNT(1) > 0);
-- Tableau 18: custom SQL
SELECT "Custom SQL Query"."sex" AS "sex", COUNT(*) AS "n", AVG("Custom SQL Query"."age") AS "a" FROM (SELECT * FROM visits WHERE insured AND age BETWEEN 18 AND 65) "Custom SQL Query" WHERE "Custom SQL Query"."city" IN ('Ada', 'Brin') GROUP BY 1;
-- dbplyr 19: piped filters
SELECT "sex", COUNT(*) AS "n", AVG("age") AS "mean" FROM (SELECT "visits".* FROM "visits" WHERE ("insured") AND ("age" >= 18.0) AND ("age" <= 65.0) AND ("city" IN ('Ada', 'Brin'))) AS "q01" GROUP BY "sex";
-- dbplyr 20: one filter after another
SELECT "sex", AVG("age") AS "mean", COUNT(*) AS "n" FROM (SELECT "q01".* FROM (SELECT "visits".* FROM "visits" WHERE ("city" IN ('Ada', 'Brin'))) AS "q01" WHERE ("age" BETWEEN 18.0 AND 65.0 AND "insured")) AS "q02" GROUP BY "sex" ORDER BY "n" DESC;
-- dbplyr 21: renamed
SELECT "gender", COUNT(*) AS "n", AVG("years") AS "mean" FROM (SELECT "sex" AS "gender", "age" AS "years" FROM "visits" WHERE ("insured" AND "age" >= 18.0 AND "age" <= 65.0 AND "city" IN ('Ada', 'Brin'))) AS "q01" GROUP BY "gender";
-- ibis 22: t0, t1
SELECT "t1"."sex", COUNT(*) AS "n", AVG("t1"."age") AS "m" FROM (SELECT * FROM "visits" AS "t0" WHERE "t0"."insured" AND "t0"."age" BETWEEN 18 AND 65 AND "t0"."city" IN ('Ada', 'Brin')) AS "t1" GROUP BY 1;
-- ibis 23: ordered outside
SELECT * FROM (SELECT "t1"."sex", AVG("t1"."age") AS "m", COUNT(*) AS "n" FROM (SELECT * FROM "visits" AS "t0" WHERE "t0"."city" IN ('Ada', 'Brin') AND "t0"."insured" AND "t0"."age" >= 18 AND "t0"."age" <= 65) AS "t1" GROUP BY 1) AS "t2" ORDER BY "t2"."n" ASC;
-- ibis 24: with a share
SELECT "t2"."sex", "t2"."n" / 1000 AS "thousands", "t2"."m" FROM (SELECT "t0"."sex", COUNT(*) AS "n", AVG("t0"."age") AS "m" FROM "visits" AS "t0" WHERE "t0"."insured" AND "t0"."age" BETWEEN 18 AND 65 AND "t0"."city" IN ('Ada', 'Brin') GROUP BY 1) AS "t2";
-- SQLAlchemy 25: labels
SELECT visits.sex AS sex, count(*) AS count_1, avg(visits.age) AS avg_1 FROM visits WHERE visits.insured AND visits.age BETWEEN 18 AND 65 AND visits.city IN ('Ada', 'Brin') GROUP BY visits.sex;
-- SQLAlchemy 26: anonymous sub-query
SELECT anon_1.sex, count(*) AS count_1, avg(anon_1.age) AS avg_1 FROM (SELECT visits.sex AS sex, visits.age AS age FROM visits WHERE visits.city IN ('Ada', 'Brin') AND visits.insured AND visits.age >= 18 AND visits.age <= 65) AS anon_1 GROUP BY anon_1.sex;
-- SQLAlchemy 27: OR of equalities
SELECT visits.sex, avg(visits.age) AS avg_1, count(*) AS count_1 FROM visits WHERE (visits.city = 'Brin' OR visits.city = 'Ada') AND visits.insured AND visits.age >= 18 AND visits.age <= 65 GROUP BY visits.sex ORDER BY avg_1;
-- dbt 28: models as WITH
WITH base AS (SELECT sex, age, city, insured FROM visits), kept AS (SELECT * FROM base WHERE insured AND city IN ('Ada', 'Brin') AND age BETWEEN 18 AND 65) SELECT sex, COUNT(*) AS n, AVG(age) AS mean FROM kept GROUP BY 1;
-- dbt 29: a final model
WITH kept AS (SELECT * FROM visits WHERE insured AND city IN ('Ada', 'Brin') AND age BETWEEN 18 AND 65), final AS (SELECT sex, AVG(age) AS mean, COUNT(*) AS n FROM kept GROUP BY sex) SELECT * FROM final;
-- Polars 30: SQL context
SELECT sex, COUNT(*) AS len, AVG(age) AS age FROM visits WHERE (((insured AND (age >= 18)) AND (age <= 65)) AND city IN ('Ada', 'Brin')) GROUP BY sex ORDER BY sex;
