-- Questions as tools phrase them; those of SQLAlchemy are captured from the library itself when the bench runs,
-- those of ibis were written by ibis 12 (capture_ibis.py), and the first 18 of Superset by Superset 6.1
-- (capture_superset.py).
-- superset 1: a bar chart
SELECT region AS region, COUNT(*) AS count FROM public.sales GROUP BY region ORDER BY count DESC LIMIT 10000
-- superset 2: a line chart by month
SELECT DATE_TRUNC('month', order_date) AS __timestamp, sum(amount) AS "SUM(amount)" FROM public.sales WHERE order_date >= TO_DATE('2023-06-01', 'YYYY-MM-DD') AND order_date < TO_DATE('2024-06-01', 'YYYY-MM-DD') GROUP BY DATE_TRUNC('month', order_date) ORDER BY "SUM(amount)" DESC LIMIT 10000
-- superset 3: a line chart by week and category, of a range of moments
SELECT DATE_TRUNC('week', created_at) AS __timestamp, category AS category, COUNT(*) AS count FROM public.sales WHERE created_at >= TO_TIMESTAMP('2023-06-01 00:00:00.000000', 'YYYY-MM-DD HH24:MI:SS.US') AND created_at < TO_TIMESTAMP('2024-06-01 00:00:00.000000', 'YYYY-MM-DD HH24:MI:SS.US') GROUP BY category, DATE_TRUNC('week', created_at) LIMIT 10000
-- superset 4: a line chart by quarter, limited to two series
SELECT DATE_TRUNC('quarter', order_date) AS __timestamp, category AS category, sum(amount) AS "SUM(amount)" FROM public.sales JOIN (SELECT category AS category__, sum(amount) AS mme_inner__ FROM public.sales WHERE order_date >= TO_DATE('2023-06-01', 'YYYY-MM-DD') AND order_date < TO_DATE('2024-06-01', 'YYYY-MM-DD') GROUP BY category ORDER BY sum(amount) DESC LIMIT 2) AS series_limit ON category = category__ WHERE order_date >= TO_DATE('2023-06-01', 'YYYY-MM-DD') AND order_date < TO_DATE('2024-06-01', 'YYYY-MM-DD') GROUP BY category, DATE_TRUNC('quarter', order_date) LIMIT 10000
-- superset 5: series limited, with the others
SELECT DATE_TRUNC('year', order_date) AS __timestamp, CASE WHEN (series_limit.category__ IS NOT NULL) THEN category ELSE 'Others' END AS category, sum(amount) AS "SUM(amount)" FROM public.sales LEFT OUTER JOIN (SELECT category AS category__, sum(amount) AS mme_inner__ FROM public.sales WHERE order_date >= TO_DATE('2023-06-01', 'YYYY-MM-DD') AND order_date < TO_DATE('2024-06-01', 'YYYY-MM-DD') GROUP BY category ORDER BY sum(amount) DESC LIMIT 2) AS series_limit ON category = category__ WHERE order_date >= TO_DATE('2023-06-01', 'YYYY-MM-DD') AND order_date < TO_DATE('2024-06-01', 'YYYY-MM-DD') GROUP BY CASE WHEN (series_limit.category__ IS NOT NULL) THEN category ELSE 'Others' END, DATE_TRUNC('year', order_date)
-- superset 6: hours of a day
SELECT DATE_TRUNC('hour', created_at) AS __timestamp, COUNT(*) AS count FROM public.sales WHERE created_at >= TO_TIMESTAMP('2023-06-01 00:00:00.000000', 'YYYY-MM-DD HH24:MI:SS.US') AND created_at < TO_TIMESTAMP('2023-06-02 00:00:00.000000', 'YYYY-MM-DD HH24:MI:SS.US') GROUP BY DATE_TRUNC('hour', created_at) LIMIT 10000
-- superset 7: a big number with filters
SELECT count(DISTINCT customer_id) AS "COUNT_DISTINCT(customer_id)" FROM public.sales WHERE region IN ('north', 'east') LIMIT 10000
-- superset 8: a big number of a range of moments
SELECT sum(amount) AS "SUM(amount)" FROM public.sales WHERE created_at >= TO_TIMESTAMP('2023-06-01 00:00:00.000000', 'YYYY-MM-DD HH24:MI:SS.US') AND created_at < TO_TIMESTAMP('2023-07-01 00:00:00.000000', 'YYYY-MM-DD HH24:MI:SS.US') LIMIT 10000
-- superset 9: a pivot table
SELECT region AS region, category AS category, sum(amount) AS "SUM(amount)", COUNT(*) AS count, AVG(quantity) AS "AVG(quantity)" FROM public.sales WHERE region != 'west' AND is_gift IS NOT NULL GROUP BY region, category ORDER BY "SUM(amount)" DESC LIMIT 10000
-- superset 10: a table with a ratio and a having
SELECT status AS status, SUM(amount) / NULLIF(SUM(quantity), 0) AS price, COUNT(*) AS n FROM public.sales WHERE (quantity > 0) GROUP BY status HAVING (COUNT(*) > 10) LIMIT 10000
-- superset 11: shares by a condition
SELECT region AS region, SUM(CASE WHEN status = 'returned' THEN 1 ELSE 0 END) * 1.0 / COUNT(*) AS returned FROM public.sales GROUP BY region LIMIT 10000
-- superset 12: a dimension in SQL
SELECT FLOOR(amount / 50) * 50 AS bin, COUNT(*) AS count FROM public.sales GROUP BY FLOOR(amount / 50) * 50 ORDER BY count DESC LIMIT 10000
-- superset 13: least and greatest by region
SELECT region AS region, min(quantity) AS "MIN(quantity)", max(quantity) AS "MAX(quantity)" FROM public.sales GROUP BY region LIMIT 10000
-- superset 14: texts like a pattern
SELECT category AS category, COUNT(*) AS count FROM public.sales WHERE product ILIKE '%set%' AND amount >= 10 AND (status NOT IN ('open')) GROUP BY category LIMIT 10000
-- superset 15: true or false
SELECT is_gift AS is_gift, sum(amount) AS "SUM(amount)" FROM public.sales WHERE is_gift IS true GROUP BY is_gift LIMIT 10000
-- superset 16: the values of a filter
SELECT category AS category FROM public.sales GROUP BY category LIMIT 10000
-- superset 17 rows: the rows of a table
SELECT customer_id AS customer_id, region AS region, amount AS amount FROM public.sales GROUP BY customer_id, region, amount LIMIT 100
-- superset 18: a virtual data set
SELECT region AS region, AVG(amount) AS "AVG(amount)" FROM (SELECT region, amount, status FROM sales WHERE status = 'paid' ) AS virtual_table GROUP BY region LIMIT 10000
-- superset 19: the values of a filter of texts
SELECT city FROM (SELECT city AS city FROM public.customers GROUP BY city) AS values_table ORDER BY city ASC LIMIT 1000
-- superset 20: the columns of a data set
SELECT * FROM (SELECT region, amount FROM sales) AS virtual_table WHERE FALSE
-- metabase 1: a count by month with quoted names
SELECT CAST(DATE_TRUNC('month', "public"."sales"."order_date") AS date) AS "order_date", COUNT(*) AS "count" FROM "public"."sales" GROUP BY CAST(DATE_TRUNC('month', "public"."sales"."order_date") AS date) ORDER BY CAST(DATE_TRUNC('month', "public"."sales"."order_date") AS date) ASC
-- metabase 2: a sum by a joined table's column
SELECT "Customers"."segment" AS "Customers__segment", SUM("public"."sales"."amount") AS "sum" FROM "public"."sales" LEFT JOIN "public"."customers" AS "Customers" ON "public"."sales"."customer_id" = "Customers"."customer_id" GROUP BY "Customers"."segment" ORDER BY "Customers"."segment" ASC
-- metabase 3: bins of a number
SELECT (FLOOR((("public"."sales"."amount" - 0.0) / 62.5)) * 62.5) + 0.0 AS "amount", COUNT(*) AS "count" FROM "public"."sales" GROUP BY (FLOOR((("public"."sales"."amount" - 0.0) / 62.5)) * 62.5) + 0.0 ORDER BY (FLOOR((("public"."sales"."amount" - 0.0) / 62.5)) * 62.5) + 0.0 ASC
-- metabase 4: a share by a condition
SELECT "source"."region" AS "region", CAST(SUM(CASE WHEN "source"."status" = 'returned' THEN 1 ELSE 0.0 END) AS FLOAT) / NULLIF(CAST(COUNT(*) AS FLOAT), 0.0) AS "share" FROM (SELECT "public"."sales"."region" AS "region", "public"."sales"."status" AS "status" FROM "public"."sales") AS "source" GROUP BY "source"."region" ORDER BY "source"."region" ASC
-- metabase 5: the last months before a day
SELECT COUNT(*) AS "count" FROM "public"."sales" WHERE "public"."sales"."created_at" >= DATE_TRUNC('month', (CAST('2024-06-15' AS timestamp) + (INTERVAL '-12 month'))) AND "public"."sales"."created_at" < DATE_TRUNC('month', CAST('2024-06-15' AS timestamp))
-- metabase 6: hours of the day
SELECT CAST(EXTRACT(hour FROM "public"."sales"."created_at") AS integer) AS "created_at", COUNT(*) AS "count" FROM "public"."sales" GROUP BY CAST(EXTRACT(hour FROM "public"."sales"."created_at") AS integer) ORDER BY CAST(EXTRACT(hour FROM "public"."sales"."created_at") AS integer) ASC
-- metabase 7: a cumulative sum
SELECT "source"."order_date" AS "order_date", SUM("source"."sum") OVER (ORDER BY "source"."order_date" ASC ROWS UNBOUNDED PRECEDING) AS "running" FROM (SELECT CAST(DATE_TRUNC('month', "public"."sales"."order_date") AS date) AS "order_date", SUM("public"."sales"."amount") AS "sum" FROM "public"."sales" GROUP BY CAST(DATE_TRUNC('month', "public"."sales"."order_date") AS date)) AS "source" ORDER BY "source"."order_date" ASC
-- metabase 8: a filter of texts in lower case
SELECT COUNT(*) AS "count" FROM "public"."sales" WHERE (LOWER("public"."sales"."product") LIKE '%guitar%')
-- metabase 9: days of the week
SELECT (CAST(EXTRACT(dow FROM "public"."sales"."order_date") AS integer) + 1) AS "order_date", AVG("public"."sales"."quantity") AS "avg" FROM "public"."sales" GROUP BY (CAST(EXTRACT(dow FROM "public"."sales"."order_date") AS integer) + 1) ORDER BY (CAST(EXTRACT(dow FROM "public"."sales"."order_date") AS integer) + 1) ASC
-- grafana 1: a series by hour from a range of seconds
SELECT FLOOR(EXTRACT(EPOCH FROM created_at) / 86400) * 86400 AS "time", COUNT(*) AS "value" FROM sales WHERE created_at BETWEEN '2023-03-01T00:00:00Z' AND '2023-03-31T23:59:59Z' GROUP BY 1 ORDER BY 1
-- grafana 2: a series by day and metric
SELECT DATE_TRUNC('day', created_at) AS "time", region AS metric, SUM(amount) AS value FROM sales WHERE created_at BETWEEN '2023-03-01T00:00:00Z' AND '2023-03-31T23:59:59Z' GROUP BY 1, 2 ORDER BY 1, 2
-- grafana 3: moments from seconds
SELECT DATE_TRUNC('month', created_at) AS "time", AVG(amount) AS "average" FROM sales WHERE created_at >= TO_TIMESTAMP(1677628800) AND created_at <= TO_TIMESTAMP(1680307199) GROUP BY 1 ORDER BY 1
-- grafana 4: a percentile
SELECT DATE_TRUNC('month', order_date) AS time, PERCENTILE_CONT(0.95) WITHIN GROUP (ORDER BY amount) AS p95 FROM sales GROUP BY time ORDER BY time
-- grafana 5: the difference to the month before
SELECT time, value - LAG(value) OVER (ORDER BY time) AS change FROM (SELECT DATE_TRUNC('month', order_date) AS time, COUNT(*) AS value FROM sales GROUP BY 1) AS s ORDER BY time
-- grafana 6: a state timeline of two counts
SELECT order_date AS "time", COUNT(*) FILTER (WHERE status = 'open') AS open, COUNT(*) FILTER (WHERE status = 'returned') AS returned FROM sales WHERE order_date >= DATE '2024-01-01' AND order_date < DATE '2024-01-01' + INTERVAL '7 days' GROUP BY 1 ORDER BY 1
-- grafana 7: a variable's values
SELECT DISTINCT region FROM sales ORDER BY 1
-- grafana 8: a moving mean
SELECT d AS "time", AVG(n) OVER (ORDER BY d ROWS BETWEEN 6 PRECEDING AND CURRENT ROW) AS "week" FROM (SELECT order_date AS d, COUNT(*) AS n FROM sales GROUP BY order_date) AS daily ORDER BY 1
-- powerbi 1: a table visual
SELECT "t0"."region", SUM("t0"."amount") AS "a0" FROM "sales" AS "t0" GROUP BY "t0"."region" LIMIT 1000001
-- powerbi 2: a table visual over folded steps
SELECT "_"."region", "_"."category", COUNT(1) AS "a0" FROM (SELECT "$Table"."region" AS "region", "$Table"."category" AS "category", "$Table"."status" AS "status" FROM "public"."sales" AS "$Table" WHERE "$Table"."status" = 'paid' AND "$Table"."status" IS NOT NULL) AS "_" GROUP BY "_"."region", "_"."category" LIMIT 1000001
-- powerbi 3: distinct customers in a card
SELECT COUNT(DISTINCT "t0"."customer_id") + CAST(MAX(CASE WHEN "t0"."customer_id" IS NULL THEN 1 ELSE 0 END) AS INTEGER) AS "a0" FROM "public"."sales" AS "t0"
-- powerbi 4: a join by relation
SELECT "basetable0"."a0", "basetable0"."segment" FROM (SELECT "t1"."segment" AS "segment", SUM("t0"."amount") AS "a0" FROM "public"."sales" AS "t0" INNER JOIN "public"."customers" AS "t1" ON ("t0"."customer_id" = "t1"."customer_id") GROUP BY "t1"."segment") AS "basetable0" WHERE NOT "basetable0"."a0" IS NULL LIMIT 1000001
-- powerbi 5: the first rows by a measure
SELECT "rows"."category" AS "category", "rows"."a0" AS "a0" FROM (SELECT "category" AS "category", SUM("quantity") AS "a0" FROM "public"."sales" GROUP BY "category") AS "rows" ORDER BY "rows"."a0" DESC, "rows"."category" LIMIT 501
-- powerbi 6: a public table on the right
SELECT "t1"."manager", SUM("t0"."amount") AS "a0" FROM "public"."sales" AS "t0" RIGHT OUTER JOIN "public"."regions" AS "t1" ON "t0"."region" = "t1"."region" GROUP BY "t1"."manager"
-- powerbi 7: a slicer's values
SELECT "t0"."status" FROM "public"."sales" AS "t0" GROUP BY "t0"."status" ORDER BY "t0"."status" LIMIT 101
-- powerbi 8: a range of years
SELECT EXTRACT(YEAR FROM "t0"."order_date") AS "c1", SUM("t0"."amount") AS "a0", AVG("t0"."discount") AS "a1" FROM "public"."sales" AS "t0" WHERE ("t0"."order_date" >= CAST('2023-01-01' AS DATE) AND "t0"."order_date" < CAST('2025-01-01' AS DATE)) GROUP BY EXTRACT(YEAR FROM "t0"."order_date")
-- tableau 1: a view by region
SELECT "sales"."region" AS "region", SUM("sales"."amount") AS "sum:amount:ok" FROM "public"."sales" "sales" GROUP BY 1
-- tableau 2: months
SELECT CAST(DATE_TRUNC('MONTH', CAST("sales"."order_date" AS DATE)) AS DATE) AS "tmn:order_date:ok", COUNT(1) AS "cnt:sales:ok" FROM "public"."sales" "sales" GROUP BY 1
-- tableau 3: parts of a date
SELECT CAST(EXTRACT(MONTH FROM "sales"."order_date") AS BIGINT) AS "mn:order_date:ok", CAST(EXTRACT(YEAR FROM "sales"."order_date") AS BIGINT) AS "yr:order_date:ok", SUM("sales"."quantity") AS "sum:quantity:ok" FROM "public"."sales" "sales" GROUP BY 1, 2
-- tableau 4: a calculated field
SELECT (CASE WHEN ("sales"."amount" > 100) THEN 'large' WHEN NOT ("sales"."amount" > 100) THEN 'small' ELSE NULL END) AS "Calculation_1", COUNT(DISTINCT "sales"."customer_id") AS "ctd:customer_id:ok" FROM "public"."sales" "sales" GROUP BY 1
-- tableau 5: the first two by a measure
SELECT "sales"."category" AS "category", SUM("sales"."amount") AS "sum:amount:ok" FROM "public"."sales" "sales" INNER JOIN (SELECT "sales"."category" AS "category", SUM("sales"."amount") AS "$__alias__0" FROM "public"."sales" "sales" GROUP BY 1 ORDER BY 2 DESC NULLS LAST LIMIT 2) "t0" ON ("sales"."category" = "t0"."category") GROUP BY 1
-- tableau 6: the domain of a filter
SELECT "sales"."status" AS "status" FROM "public"."sales" "sales" GROUP BY 1 ORDER BY 1 ASC NULLS FIRST
-- tableau 7: a level of detail for each customer
SELECT "t0"."orders" AS "orders", COUNT(1) AS "customers" FROM (SELECT "sales"."customer_id" AS "customer_id", COUNT(1) AS "orders" FROM "public"."sales" "sales" GROUP BY 1) "t0" GROUP BY 1
-- tableau 8: the ends of a range filter
SELECT MIN("sales"."order_date") AS "TEMP(min)", MAX("sales"."order_date") AS "TEMP(max)", COUNT(1) AS "n" FROM "public"."sales" "sales" HAVING (COUNT(1) > 0)
-- tableau 9: a measure in percent of the whole
SELECT "sales"."region" AS "region", SUM("sales"."amount") / SUM(SUM("sales"."amount")) OVER () AS "pcto" FROM "public"."sales" "sales" GROUP BY 1
-- tableau 10: a spread and a date cut to weeks
SELECT DATE_TRUNC('WEEK', "sales"."created_at") AS "twk", STDDEV_SAMP("sales"."amount") AS "std:amount:ok" FROM "public"."sales" "sales" GROUP BY 1
-- dbplyr 1: count()
SELECT "region", COUNT(*) AS "n" FROM "sales" GROUP BY "region" ORDER BY "n" DESC
-- dbplyr 2: filter, group_by, summarise
SELECT "category", AVG("amount") AS "m", SUM("quantity") AS "q" FROM (SELECT "sales".* FROM "sales" WHERE ("status" = 'paid')) AS "q01" GROUP BY "category"
-- dbplyr 3: mutate before summarise
SELECT "year", SUM("net") AS "net" FROM (SELECT "sales".*, EXTRACT(YEAR FROM "order_date") AS "year", "amount" * (1.0 - "discount") AS "net" FROM "sales") AS "q01" GROUP BY "year" ORDER BY "year"
-- dbplyr 4: inner_join
SELECT "segment", COUNT(*) AS "n" FROM (SELECT "LHS".*, "segment" FROM "sales" AS "LHS" INNER JOIN "customers" AS "RHS" ON ("LHS"."customer_id" = "RHS"."customer_id")) AS "q01" GROUP BY "segment"
-- dbplyr 5: semi_join
SELECT "region", SUM("amount") AS "s" FROM (SELECT "LHS".* FROM "sales" AS "LHS" WHERE EXISTS (SELECT 1 FROM "customers" AS "RHS" WHERE ("LHS"."customer_id" = "RHS"."customer_id") AND ("RHS"."segment" = 'business'))) AS "q01" GROUP BY "region"
-- dbplyr 6: anti_join
SELECT COUNT(*) AS "n" FROM (SELECT "LHS".* FROM "customers" AS "LHS" WHERE NOT EXISTS (SELECT 1 FROM "sales" AS "RHS" WHERE ("LHS"."customer_id" = "RHS"."customer_id"))) AS "q01"
-- dbplyr 7: n_distinct and ratios
SELECT "region", COUNT(DISTINCT "customer_id") AS "people", SUM("amount") / NULLIF(COUNT(DISTINCT "customer_id"), 0) AS "each" FROM "sales" GROUP BY "region"
-- dbplyr 8: slice_max of a summary
SELECT "category", "s" FROM (SELECT "q01".*, RANK() OVER (ORDER BY "s" DESC) AS "col01" FROM (SELECT "category", SUM("amount") AS "s" FROM "sales" GROUP BY "category") AS "q01") AS "q01" WHERE ("col01" <= 2)
-- dbplyr 9: cut with case_when
SELECT "size", COUNT(*) AS "n" FROM (SELECT CASE WHEN ("amount" <= 50.0) THEN 'small' WHEN ("amount" <= 200.0) THEN 'middle' ELSE 'large' END AS "size" FROM "sales") AS "q01" GROUP BY "size"
-- ibis 1: group_by and aggregate
SELECT "t0"."region", SUM("t0"."amount") AS "total", COUNT(*) AS "n" FROM "sales" AS "t0" GROUP BY 1
-- ibis 2: a filter after an aggregate, and its order
SELECT * FROM ( SELECT "t0"."category", AVG("t0"."amount") AS "mean" FROM "sales" AS "t0" GROUP BY 1 ) AS "t1" WHERE "t1"."mean" > 10 ORDER BY "t1"."mean" DESC NULLS LAST
-- ibis 3: a new column, and its counts
SELECT "t1"."big", COUNT(*) AS "n" FROM ( SELECT "t0"."customer_id", "t0"."order_id", "t0"."order_date", "t0"."created_at", "t0"."region", "t0"."category", "t0"."product", "t0"."status", "t0"."amount", "t0"."quantity", "t0"."discount", "t0"."is_gift", "t0"."amount" > 100 AS "big" FROM "sales" AS "t0" ) AS "t1" GROUP BY 1
-- ibis 4: months
SELECT * FROM ( SELECT DATE_TRUNC('MONTH', "t0"."created_at") AS "month", SUM("t0"."quantity") AS "q" FROM "sales" AS "t0" GROUP BY 1 ) AS "t1" ORDER BY "t1"."month" ASC
-- ibis 5: where in aggregates
SELECT SUM("t0"."amount") FILTER(WHERE "t0"."status" = 'paid') AS "paid", AVG("t0"."amount") FILTER(WHERE "t0"."is_gift") AS "gift", COUNT("t0"."product") FILTER(WHERE STARTS_WITH("t0"."product", 'a')) AS "a" FROM "sales" AS "t0"
-- ibis 6: a correlation and a covariance
SELECT CORR("t0"."amount", "t0"."quantity") AS "c", COVAR_POP("t0"."amount", "t0"."discount") AS "v" FROM "sales" AS "t0"
-- ibis 7: value counts
SELECT * FROM ( SELECT "t1"."status", COUNT(*) AS "status_count" FROM ( SELECT "t0"."status" FROM "sales" AS "t0" ) AS "t1" GROUP BY 1 ) AS "t2" ORDER BY "t2"."status_count" DESC NULLS LAST
-- ibis 8: a rank over a summary
SELECT "t1"."region", "t1"."total", ROW_NUMBER() OVER ( ORDER BY "t1"."total" DESC NULLS LAST ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING ) - 1 AS "rank" FROM ( SELECT "t0"."region", SUM("t0"."amount") AS "total" FROM "sales" AS "t0" GROUP BY 1 ) AS "t1"
-- ibis 9: a logarithm, a power and a greatest
SELECT AVG(LN(GREATEST("t0"."amount", 1))) AS "l", SUM(POW("t0"."quantity", 2)) AS "p", AVG(LOG("t0"."amount" + 1)) AS "g" FROM "sales" AS "t0"
-- ibis 10: a join with a public table
SELECT "t5"."manager", COUNT(*) AS "n" FROM ( SELECT * FROM ( SELECT "t2"."customer_id", "t2"."order_id", "t2"."order_date", "t2"."created_at", "t2"."region", "t2"."category", "t2"."product", "t2"."status", "t2"."amount", "t2"."quantity", "t2"."discount", "t2"."is_gift", "t3"."manager", "t3"."target" FROM "sales" AS "t2" INNER JOIN "regions" AS "t3" ON "t2"."region" = "t3"."region" ) AS "t4" WHERE "t4"."target" >= 1000 ) AS "t5" GROUP BY 1
-- ibis 11: a join over people
SELECT "t4"."segment", COUNT(*) AS "n", COUNT(DISTINCT "t4"."customer_id") AS "people" FROM ( SELECT "t2"."customer_id", "t2"."order_id", "t2"."order_date", "t2"."created_at", "t2"."region", "t2"."category", "t2"."product", "t2"."status", "t2"."amount", "t2"."quantity", "t2"."discount", "t2"."is_gift", "t3"."segment", "t3"."city", "t3"."birth_year", "t3"."signup" FROM "sales" AS "t2" INNER JOIN "customers" AS "t3" ON "t2"."customer_id" = "t3"."customer_id" ) AS "t4" GROUP BY 1
-- ibis 12: a pivot
SELECT "t0"."region", SUM("t0"."amount") FILTER(WHERE "t0"."status" = 'paid') AS "paid", SUM("t0"."amount") FILTER(WHERE "t0"."status" = 'open') AS "open", SUM("t0"."amount") FILTER(WHERE "t0"."status" = 'returned') AS "returned" FROM "sales" AS "t0" GROUP BY 1
-- ibis 13: a case
SELECT SUM(CASE WHEN "t0"."order_date" > MAKE_DATE(2024, 6, 30) THEN 1 ELSE 0 END) AS "late" FROM "sales" AS "t0"
-- ibis 14: buckets
SELECT CASE WHEN ( 0 <= "t0"."amount" ) AND ( "t0"."amount" < 50 ) THEN 0 WHEN ( 50 <= "t0"."amount" ) AND ( "t0"."amount" < 100 ) THEN 1 WHEN ( 100 <= "t0"."amount" ) AND ( "t0"."amount" <= 500 ) THEN 2 ELSE NULL END AS "bucket", COUNT(*) AS "n" FROM "sales" AS "t0" GROUP BY 1
-- ibis 15: quantiles
SELECT PERCENTILE_CONT(0.5) WITHIN GROUP (ORDER BY "t0"."amount") AS "m", PERCENTILE_CONT(0.9) WITHIN GROUP (ORDER BY "t0"."amount") AS "q" FROM "sales" AS "t0"
-- ibis 16: having
SELECT "t1"."region", "t1"."s" FROM ( SELECT "t0"."region", STDDEV_SAMP("t0"."amount") AS "s", COUNT(*) AS "CountStar(sales)" FROM "sales" AS "t0" GROUP BY 1 ) AS "t1" WHERE "t1"."CountStar(sales)" > 10
-- ibis 17: topk
SELECT * FROM ( SELECT "t0"."category", COUNT(*) AS "category_count" FROM "sales" AS "t0" GROUP BY 1 ) AS "t1" ORDER BY "t1"."category_count" DESC NULLS LAST LIMIT 2
-- ibis 18: a share of all
SELECT "t1"."region", "t1"."total", CAST("t1"."total" AS DOUBLE PRECISION) / SUM("t1"."total") OVER (ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING) AS "share" FROM ( SELECT "t0"."region", SUM("t0"."amount") AS "total" FROM "sales" AS "t0" GROUP BY 1 ) AS "t1"
-- ibis 19: between and isin
SELECT COUNT(*) AS "n" FROM ( SELECT * FROM "sales" AS "t0" WHERE "t0"."region" IN ('north', 'east') AND "t0"."amount" BETWEEN 1 AND 100 ) AS "t1"
-- ibis 20: a week day
SELECT CAST(EXTRACT('dow' FROM "t0"."order_date") + 6 AS SMALLINT) % 7 AS "day", COUNT(*) AS "n" FROM "sales" AS "t0" GROUP BY 1
-- ibis 21 rows: rows of people
SELECT "t0"."customer_id", "t0"."amount" FROM "sales" AS "t0" LIMIT 10
-- psql 1: words of a month
SELECT TO_CHAR(order_date, 'YYYY-MM') AS month, COUNT(*) FROM sales GROUP BY 1 ORDER BY 1
-- psql 2: parts by name
SELECT DATE_PART('year', order_date) AS y, DATE_PART('month', order_date) AS m, COUNT(*) FROM sales GROUP BY 1, 2 ORDER BY 1, 2
-- psql 3: the three best months of each region
SELECT region, DATE_TRUNC('month', order_date) AS m, SUM(amount) AS s FROM sales GROUP BY 1, 2 QUALIFY ROW_NUMBER() OVER (PARTITION BY region ORDER BY SUM(amount) DESC) <= 3
-- psql 4: those above the mean of all
SELECT region, SUM(amount) AS s FROM sales GROUP BY region HAVING SUM(amount) > (SELECT AVG(t) FROM (SELECT SUM(amount) AS t FROM sales GROUP BY region) AS x)
-- psql 5: a slope
SELECT REGR_SLOPE(amount, quantity), REGR_INTERCEPT(amount, quantity), REGR_COUNT(amount, quantity) FROM sales
-- psql 6: customers with a sale above a limit
SELECT segment, COUNT(*) FROM customers WHERE customer_id IN (SELECT customer_id FROM sales WHERE amount > 400) GROUP BY segment
-- psql 7: the regions of one manager
SELECT COUNT(*) FROM sales WHERE region IN (SELECT region FROM regions WHERE manager LIKE 'A%')
-- psql 8: a label put together
SELECT CONCAT_WS(' / ', region, category) AS label, COUNT(*) FROM sales GROUP BY label ORDER BY label
-- psql 9: all who bought or signed up
SELECT COUNT(DISTINCT COALESCE(s.customer_id, c.customer_id)) FROM sales s FULL JOIN customers c ON s.customer_id = c.customer_id
-- psql 10: the age in years on a day
SELECT AVG(2024 - birth_year) AS age, COUNT(*) FROM customers WHERE AGE(DATE '2024-12-31', signup) > INTERVAL '1 year'
