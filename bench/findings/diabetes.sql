-- measured_people_return_less: Early readmission is rarer where HbA1c was measured.
SELECT AVG(CAST(readmitted = '<30' AS INT)) FILTER (A1Cresult IS NULL) - AVG(CAST(readmitted = '<30' AS INT)) FILTER (A1Cresult IS NOT NULL) FROM rows;
-- who_was_there_returns: Early readmission is likelier after an earlier stay.
SELECT AVG(CAST(readmitted = '<30' AS INT)) FILTER (CAST(number_inpatient AS INT) > 0) - AVG(CAST(readmitted = '<30' AS INT)) FILTER (CAST(number_inpatient AS INT) = 0) FROM rows;
-- old_people_stay_longer: Stays are longer from 70 on.
SELECT AVG(CAST(time_in_hospital AS INT)) FILTER (age IN ('[70-80)', '[80-90)', '[90-100)')) - AVG(CAST(time_in_hospital AS INT)) FILTER (age NOT IN ('[70-80)', '[80-90)', '[90-100)')) FROM rows;
-- longer_stays_more_drugs: Longer stays come with more medications.
SELECT CORR(CAST(time_in_hospital AS INT), num_medications) FROM rows;
-- high_values_change_treatment: Treatment is changed more often at HbA1c over 8 than at normal values.
SELECT AVG(CAST(change = 'Ch' AS INT)) FILTER (A1Cresult = '>8') - AVG(CAST(change = 'Ch' AS INT)) FILTER (A1Cresult = 'Norm') FROM rows;
-- old_people_return: Early readmission is likelier from 70 on.
SELECT AVG(CAST(readmitted = '<30' AS INT)) FILTER (age IN ('[70-80)', '[80-90)', '[90-100)')) - AVG(CAST(readmitted = '<30' AS INT)) FILTER (age NOT IN ('[70-80)', '[80-90)', '[90-100)')) FROM rows;
-- insulin_users_return: Early readmission is likelier with insulin.
SELECT AVG(CAST(readmitted = '<30' AS INT)) FILTER (insulin <> 'No') - AVG(CAST(readmitted = '<30' AS INT)) FILTER (insulin = 'No') FROM rows;
-- young_people_have_high_values: HbA1c over 8, where measured, is more frequent below 50 than above.
SELECT AVG(CAST(A1Cresult = '>8' AS INT)) FILTER (age IN ('[20-30)', '[30-40)', '[40-50)')) - AVG(CAST(A1Cresult = '>8' AS INT)) FILTER (age IN ('[60-70)', '[70-80)', '[80-90)')) FROM rows WHERE A1Cresult IS NOT NULL;
-- black_women_more_than_black_men: Among Black patients women are more frequent than among White ones.
SELECT AVG(CAST(gender = 'Female' AS INT)) FILTER (race = 'AfricanAmerican') - AVG(CAST(gender = 'Female' AS INT)) FILTER (race = 'Caucasian') FROM rows;
-- longer_stays_return_after_seventy: From 70 on, early readmission is likelier after stays of a week and more.
SELECT AVG(CAST(readmitted = '<30' AS INT)) FILTER (CAST(time_in_hospital AS INT) >= 7) - AVG(CAST(readmitted = '<30' AS INT)) FILTER (CAST(time_in_hospital AS INT) < 7) FROM rows WHERE age IN ('[70-80)', '[80-90)', '[90-100)');
