-- What an analyst of a web site asks of its log of page views.
-- 1: all views
SELECT COUNT(*) FROM views
-- 2: views that came from an ad
SELECT COUNT(*) FROM views WHERE ad_id <> 0
-- 3: three totals at once
SELECT SUM(ad_id), COUNT(*), AVG(width) FROM views
-- 4: the mean of an identifier's number
SELECT AVG(ip) FROM views
-- 5: visitors
SELECT COUNT(DISTINCT visitor_id) FROM views
-- 6: different search phrases
SELECT COUNT(DISTINCT phrase) FROM views
-- 7: the days of the log
SELECT MIN(seen_on), MAX(seen_on) FROM views
-- 8: views by ad, most first
SELECT ad_id, COUNT(*) FROM views WHERE ad_id <> 0 GROUP BY ad_id ORDER BY COUNT(*) DESC
-- 9: regions by visitors
SELECT region_id, COUNT(DISTINCT visitor_id) AS u FROM views GROUP BY region_id ORDER BY u DESC LIMIT 10
-- 10: regions by several figures
SELECT region_id, SUM(ad_id), COUNT(*) AS c, AVG(width), COUNT(DISTINCT visitor_id) FROM views GROUP BY region_id ORDER BY c DESC LIMIT 10
-- 11: models of phones by visitors
SELECT phone_model, COUNT(DISTINCT visitor_id) AS u FROM views WHERE phone_model <> '' GROUP BY phone_model ORDER BY u DESC LIMIT 10
-- 12: kinds and models of phones by visitors
SELECT phone, phone_model, COUNT(DISTINCT visitor_id) AS u FROM views WHERE phone_model <> '' GROUP BY phone, phone_model ORDER BY u DESC LIMIT 10
-- 13: search phrases by views
SELECT phrase, COUNT(*) AS c FROM views WHERE phrase <> '' GROUP BY phrase ORDER BY c DESC LIMIT 10
-- 14: search phrases by visitors
SELECT phrase, COUNT(DISTINCT visitor_id) AS u FROM views WHERE phrase <> '' GROUP BY phrase ORDER BY u DESC LIMIT 10
-- 15: engines and phrases by views
SELECT engine_id, phrase, COUNT(*) AS c FROM views WHERE phrase <> '' GROUP BY engine_id, phrase ORDER BY c DESC LIMIT 10
-- 16 rows: the visitors with most views
SELECT visitor_id, COUNT(*) FROM views GROUP BY visitor_id ORDER BY COUNT(*) DESC LIMIT 10
-- 17 rows: visitors and what they searched, most first
SELECT visitor_id, phrase, COUNT(*) FROM views GROUP BY visitor_id, phrase ORDER BY COUNT(*) DESC LIMIT 10
-- 18 rows: some visitors and what they searched
SELECT visitor_id, phrase, COUNT(*) FROM views GROUP BY visitor_id, phrase LIMIT 10
-- 19 rows: visitors, minutes and phrases
SELECT visitor_id, EXTRACT(minute FROM seen_at) AS m, phrase, COUNT(*) FROM views GROUP BY visitor_id, m, phrase ORDER BY COUNT(*) DESC LIMIT 10
-- 20 rows: one visitor
SELECT visitor_id FROM views WHERE visitor_id = 435090932899640449
-- 21: views of pages with a word in the address
SELECT COUNT(*) FROM views WHERE url LIKE '%search%'
-- 22 rows: phrases with one address of each
SELECT phrase, MIN(url), COUNT(*) AS c FROM views WHERE url LIKE '%search%' AND phrase <> '' GROUP BY phrase ORDER BY c DESC LIMIT 10
-- 23 rows: phrases with one address, one title and the visitors of each
SELECT phrase, MIN(url), MIN(title), COUNT(*) AS c, COUNT(DISTINCT visitor_id) FROM views WHERE title LIKE '%Search%' AND url NOT LIKE '%.search.%' AND phrase <> '' GROUP BY phrase ORDER BY c DESC LIMIT 10
-- 24 rows: whole rows
SELECT * FROM views WHERE url LIKE '%search%' ORDER BY seen_at LIMIT 10
-- 25 rows: the first phrases by time
SELECT phrase FROM views WHERE phrase <> '' ORDER BY seen_at LIMIT 10
-- 26 rows: the first phrases by letter
SELECT phrase FROM views WHERE phrase <> '' ORDER BY phrase LIMIT 10
-- 27 rows: the first phrases by time and letter
SELECT phrase FROM views WHERE phrase <> '' ORDER BY seen_at, phrase LIMIT 10
-- 28: how long addresses are, by site
SELECT site_id, AVG(LENGTH(url)) AS l, COUNT(*) AS c FROM views WHERE url <> '' GROUP BY site_id HAVING COUNT(*) > 100000 ORDER BY l DESC LIMIT 25
-- 29: how long referring addresses are, by their host
SELECT REGEXP_REPLACE(referrer, '^https?://(?:www\.)?([^/]+)/.*$', '\1') AS k, AVG(LENGTH(referrer)) AS l, COUNT(*) AS c FROM views WHERE referrer <> '' GROUP BY k HAVING COUNT(*) > 100000 ORDER BY l DESC LIMIT 25
-- 30: many shifted sums
SELECT SUM(width), SUM(width + 1), SUM(width + 2), SUM(width + 3), SUM(width + 4), SUM(width + 5), SUM(width + 6), SUM(width + 7), SUM(width + 8), SUM(width + 9), SUM(width + 10), SUM(width + 11), SUM(width + 12), SUM(width + 13), SUM(width + 14), SUM(width + 15), SUM(width + 16), SUM(width + 17), SUM(width + 18), SUM(width + 19) FROM views
-- 31: engines and addresses of computers
SELECT engine_id, ip, COUNT(*) AS c, SUM(is_refresh), AVG(width) FROM views WHERE phrase <> '' GROUP BY engine_id, ip ORDER BY c DESC LIMIT 10
-- 32: pages and addresses of computers where something was searched
SELECT url_hash, ip, COUNT(*) AS c, SUM(is_refresh), AVG(width) FROM views WHERE phrase <> '' GROUP BY url_hash, ip ORDER BY c DESC LIMIT 10
-- 33: pages and addresses of computers
SELECT url_hash, ip, COUNT(*) AS c, SUM(is_refresh), AVG(width) FROM views GROUP BY url_hash, ip ORDER BY c DESC LIMIT 10
-- 34: pages by views
SELECT url, COUNT(*) AS c FROM views GROUP BY url ORDER BY c DESC LIMIT 10
-- 35: a constant and pages by views
SELECT 1, url, COUNT(*) AS c FROM views GROUP BY 1, url ORDER BY c DESC LIMIT 10
-- 36: computers and their neighbors
SELECT ip, ip - 1, ip - 2, ip - 3, COUNT(*) AS c FROM views GROUP BY ip, ip - 1, ip - 2, ip - 3 ORDER BY c DESC LIMIT 10
-- 37: pages of one site in a month
SELECT url, COUNT(*) AS pageviews FROM views WHERE site_id = 62 AND seen_on >= '2013-07-01' AND seen_on <= '2013-07-31' AND uncounted = 0 AND is_refresh = 0 AND url <> '' GROUP BY url ORDER BY pageviews DESC LIMIT 10
-- 38: titles of one site in a month
SELECT title, COUNT(*) AS pageviews FROM views WHERE site_id = 62 AND seen_on >= '2013-07-01' AND seen_on <= '2013-07-31' AND uncounted = 0 AND is_refresh = 0 AND title <> '' GROUP BY title ORDER BY pageviews DESC LIMIT 10
-- 39: links of one site in a month, from the thousandth on
SELECT url, COUNT(*) AS pageviews FROM views WHERE site_id = 62 AND seen_on >= '2013-07-01' AND seen_on <= '2013-07-31' AND is_refresh = 0 AND is_link <> 0 AND is_download = 0 GROUP BY url ORDER BY pageviews DESC LIMIT 10 OFFSET 1000
-- 40: where views of one site came from
SELECT source_id, engine_id, ad_id, CASE WHEN (engine_id = 0 AND ad_id = 0) THEN referrer ELSE '' END AS src, url AS dst, COUNT(*) AS pageviews FROM views WHERE site_id = 62 AND seen_on >= '2013-07-01' AND seen_on <= '2013-07-31' AND is_refresh = 0 GROUP BY source_id, engine_id, ad_id, src, dst ORDER BY pageviews DESC LIMIT 10 OFFSET 1000
-- 41: pages of one site by day for one referrer
SELECT url_hash, seen_on, COUNT(*) AS pageviews FROM views WHERE site_id = 62 AND seen_on >= '2013-07-01' AND seen_on <= '2013-07-31' AND is_refresh = 0 AND source_id IN (-1, 6) AND referrer_hash = 3594120000172545465 GROUP BY url_hash, seen_on ORDER BY pageviews DESC LIMIT 10 OFFSET 100
-- 42: sizes of windows on one page
SELECT window_width, window_height, COUNT(*) AS pageviews FROM views WHERE site_id = 62 AND seen_on >= '2013-07-01' AND seen_on <= '2013-07-31' AND is_refresh = 0 AND uncounted = 0 AND url_hash = 2868770270353813622 GROUP BY window_width, window_height ORDER BY pageviews DESC LIMIT 10 OFFSET 10000
-- 43: views of one site by minute
SELECT DATE_TRUNC('minute', seen_at) AS m, COUNT(*) AS pageviews FROM views WHERE site_id = 62 AND seen_on >= '2013-07-14' AND seen_on <= '2013-07-15' AND is_refresh = 0 AND uncounted = 0 GROUP BY DATE_TRUNC('minute', seen_at) ORDER BY DATE_TRUNC('minute', seen_at) LIMIT 10 OFFSET 1000
