-- young_women_have_degrees: From 25 to 34, more women than men have a bachelor's degree. [bauman]
SELECT AVG(CAST(CAST(EDU AS INT) >= 9 AS INT)) FILTER (SEX = '2') - AVG(CAST(CAST(EDU AS INT) >= 9 AS INT)) FILTER (SEX = '1') FROM rows WHERE AGEP BETWEEN 25 AND 34;
-- old_men_have_degrees: From 65 on, more men than women have one. [bauman]
SELECT AVG(CAST(CAST(EDU AS INT) >= 9 AS INT)) FILTER (SEX = '1') - AVG(CAST(CAST(EDU AS INT) >= 9 AS INT)) FILTER (SEX = '2') FROM rows WHERE AGEP >= 65;
-- women_lead_in_degrees: Over all ages from 25 on, women lead men. [bauman]
SELECT AVG(CAST(CAST(EDU AS INT) >= 9 AS INT)) FILTER (SEX = '2') - AVG(CAST(CAST(EDU AS INT) >= 9 AS INT)) FILTER (SEX = '1') FROM rows WHERE AGEP >= 25;
-- asians_have_degrees: Asians have the highest rate of bachelor's degrees, before non-Hispanic Whites. [acs2019]
SELECT AVG(CAST(CAST(EDU AS INT) >= 9 AS INT)) FILTER (RAC1P = '6') - AVG(CAST(CAST(EDU AS INT) >= 9 AS INT)) FILTER (RAC1P = '1' AND HISP = '0') FROM rows WHERE AGEP >= 25;
-- whites_follow: Non-Hispanic Whites follow, before all others. [acs2019]
SELECT AVG(CAST(CAST(EDU AS INT) >= 9 AS INT)) FILTER (RAC1P = '1' AND HISP = '0') - AVG(CAST(CAST(EDU AS INT) >= 9 AS INT)) FILTER (RAC1P <> '6' AND NOT (RAC1P = '1' AND HISP = '0')) FROM rows WHERE AGEP >= 25;
-- disability_comes_with_poverty: From 16 on, 21% of people with a disability and 11% of the others are poor. [ada2011]
SELECT AVG(CAST(POVPIP < 100 AS INT)) FILTER (DREM = '1' OR DPHY = '1' OR DEYE = '1' OR DEAR = '1') - AVG(CAST(POVPIP < 100 AS INT)) FILTER (NOT (DREM = '1' OR DPHY = '1' OR DEYE = '1' OR DEAR = '1')) FROM rows WHERE AGEP >= 16;
-- disability_and_degrees: From 25 on, 13% of people with a disability and 31% of the others have a bachelor's degree. [ada2011]
SELECT AVG(CAST(CAST(EDU AS INT) >= 9 AS INT)) FILTER (NOT (DREM = '1' OR DPHY = '1' OR DEYE = '1' OR DEAR = '1')) - AVG(CAST(CAST(EDU AS INT) >= 9 AS INT)) FILTER (DREM = '1' OR DPHY = '1' OR DEYE = '1' OR DEAR = '1') FROM rows WHERE AGEP >= 25;
-- disability_and_school: From 25 on, 28% of people with a disability and 12% of the others did not finish high school. [ada2011]
SELECT AVG(CAST(CAST(EDU AS INT) < 5 AS INT)) FILTER (DREM = '1' OR DPHY = '1' OR DEYE = '1' OR DEAR = '1') - AVG(CAST(CAST(EDU AS INT) < 5 AS INT)) FILTER (NOT (DREM = '1' OR DPHY = '1' OR DEYE = '1' OR DEAR = '1')) FROM rows WHERE AGEP >= 25;
-- women_have_more_disabilities: 12.3% of females and 11.6% of males have a disability. [nysdca]
SELECT AVG(CAST((DREM = '1' OR DPHY = '1' OR DEYE = '1' OR DEAR = '1') AS INT)) FILTER (SEX = '2') - AVG(CAST((DREM = '1' OR DPHY = '1' OR DEYE = '1' OR DEAR = '1') AS INT)) FILTER (SEX = '1') FROM rows;
-- disability_after_75: 50.0% of people of 75 and more and 25.4% from 65 to 74 have a disability. [demomemo2018]
SELECT AVG(CAST((DREM = '1' OR DPHY = '1' OR DEYE = '1' OR DEAR = '1') AS INT)) FILTER (AGEP >= 75) - AVG(CAST((DREM = '1' OR DPHY = '1' OR DEYE = '1' OR DEAR = '1') AS INT)) FILTER (AGEP BETWEEN 65 AND 74) FROM rows;
-- disability_after_65: 25.4% from 65 to 74 and 12.9% from 35 to 64 have one. [demomemo2018]
SELECT AVG(CAST((DREM = '1' OR DPHY = '1' OR DEYE = '1' OR DEAR = '1') AS INT)) FILTER (AGEP BETWEEN 65 AND 74) - AVG(CAST((DREM = '1' OR DPHY = '1' OR DEYE = '1' OR DEAR = '1') AS INT)) FILTER (AGEP BETWEEN 35 AND 64) FROM rows;
-- walking_before_hearing: From 75 on, 31.0% have difficulty walking and 21.7% hearing. [demomemo2020]
SELECT AVG(CAST(DPHY = '1' AS INT)) - AVG(CAST(DEAR = '1' AS INT)) FROM rows WHERE AGEP >= 75;
-- hearing_before_thinking: From 75 on, 21.7% have difficulty hearing and 13.1% a cognitive one. [demomemo2020]
SELECT AVG(CAST(DEAR = '1' AS INT)) - AVG(CAST(DREM = '1' AS INT)) FROM rows WHERE AGEP >= 75;
-- thinking_before_hearing_at_all_ages: Over all ages 5.1% have a cognitive difficulty and 3.6% one with hearing. [demomemo2020]
SELECT AVG(CAST(COALESCE(DREM, '2') = '1' AS INT)) - AVG(CAST(DEAR = '1' AS INT)) FROM rows;
