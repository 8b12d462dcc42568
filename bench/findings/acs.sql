-- women_earn_less: Women of 25 to 64 have lower incomes than men.
SELECT AVG(PINCP) FILTER (SEX = '1') - AVG(PINCP) FILTER (SEX = '2') FROM rows WHERE AGEP BETWEEN 25 AND 64;
-- women_with_a_degree_earn_less: So do women with a degree.
SELECT AVG(PINCP) FILTER (SEX = '1') - AVG(PINCP) FILTER (SEX = '2') FROM rows WHERE CAST(EDU AS INT) >= 10;
-- education_pays: Incomes are higher with a degree than without one.
SELECT AVG(PINCP) FILTER (CAST(EDU AS INT) >= 10) - AVG(PINCP) FILTER (CAST(EDU AS INT) < 10) FROM rows;
-- marriage_pays_for_men: Men with a wife earn more than men who never married, from 25 to 64.
SELECT AVG(PINCP) FILTER (MSP = '1') - AVG(PINCP) FILTER (MSP = '6') FROM rows WHERE SEX = '1' AND AGEP BETWEEN 25 AND 64;
-- the_gap_is_wider_in_marriage: Men earn more than women by a larger amount if married than if never married.
SELECT (AVG(PINCP) FILTER (SEX = '1' AND MSP = '1') - AVG(PINCP) FILTER (SEX = '2' AND MSP = '1'))
     - (AVG(PINCP) FILTER (SEX = '1' AND MSP = '6') - AVG(PINCP) FILTER (SEX = '2' AND MSP = '6')) FROM rows;
-- walking_gets_harder: Trouble with walking is more frequent from 65 on.
SELECT AVG(CAST(DPHY = '1' AS INT)) FILTER (AGEP >= 65) - AVG(CAST(DPHY = '1' AS INT)) FILTER (AGEP < 65) FROM rows;
-- old_men_hear_worse: Trouble with hearing is more frequent in men than in women from 65 on.
SELECT AVG(CAST(DEAR = '1' AS INT)) FILTER (SEX = '1') - AVG(CAST(DEAR = '1' AS INT)) FILTER (SEX = '2') FROM rows WHERE AGEP >= 65;
-- owners_are_older: People in homes of their own are older than those who rent.
SELECT AVG(AGEP) FILTER (OWN_RENT = '1') - AVG(AGEP) FILTER (OWN_RENT = '2') FROM rows;
-- black_people_are_poorer: Incomes of Black people are a smaller multiple of the poverty line than those of White people.
SELECT AVG(POVPIP) FILTER (RAC1P = '1') - AVG(POVPIP) FILTER (RAC1P = '2') FROM rows;
-- at_equal_education_too: So they are among people with a degree.
SELECT AVG(POVPIP) FILTER (RAC1P = '1') - AVG(POVPIP) FILTER (RAC1P = '2') FROM rows WHERE CAST(EDU AS INT) >= 10;
