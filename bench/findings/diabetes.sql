-- hba1c_is_measured_infrequently: HbA1c was measured in 18.4% of the stays, less than 20%. [strack]
SELECT 0.2 - AVG(CAST(A1Cresult IS NOT NULL AS INT)) FROM rows;
-- medication_changes_after_the_test: More than half of those who were tested had a change in medication. [ventura]
SELECT AVG(CAST(change = 'Ch' AS INT)) - 0.5 FROM rows WHERE A1Cresult IS NOT NULL;
-- normal_values_return_less: Patients with a normal HbA1c were less likely to be readmitted. [ventura]
SELECT AVG(CAST(readmitted <> 'NO' AS INT)) FILTER (A1Cresult IS NULL OR A1Cresult <> 'Norm') - AVG(CAST(readmitted <> 'NO' AS INT)) FILTER (A1Cresult = 'Norm') FROM rows;
-- old_people_return_early: Patients of 60 to 100 were more likely to be readmitted within 30 days. [ventura]
SELECT AVG(CAST(readmitted = '<30' AS INT)) FILTER (age IN ('[60-70)', '[70-80)', '[80-90)', '[90-100)')) - AVG(CAST(readmitted = '<30' AS INT)) FILTER (age NOT IN ('[60-70)', '[70-80)', '[80-90)', '[90-100)')) FROM rows;
-- young_people_return_less: Patients below 30 were less likely to be readmitted at all. [ventura]
SELECT AVG(CAST(readmitted <> 'NO' AS INT)) FILTER (age NOT IN ('[0-10)', '[10-20)', '[20-30)')) - AVG(CAST(readmitted <> 'NO' AS INT)) FILTER (age IN ('[0-10)', '[10-20)', '[20-30)')) FROM rows;
-- early_readmission_and_emergencies: Patients readmitted within 30 days had more emergency visits in the prior year. [fairlearn]
SELECT AVG(CAST(number_emergency <> '0' AS INT)) FILTER (readmitted = '<30') - AVG(CAST(number_emergency <> '0' AS INT)) FILTER (readmitted <> '<30') FROM rows;
-- early_readmission_and_stays: And more inpatient visits. [fairlearn]
SELECT AVG(CAST(number_inpatient <> '0' AS INT)) FILTER (readmitted = '<30') - AVG(CAST(number_inpatient <> '0' AS INT)) FILTER (readmitted <> '<30') FROM rows;
-- also_among_black_patients: And more inpatient visits in all groups, here among African American patients. [fairlearn]
SELECT AVG(CAST(number_inpatient <> '0' AS INT)) FILTER (readmitted = '<30') - AVG(CAST(number_inpatient <> '0' AS INT)) FILTER (readmitted <> '<30') FROM rows WHERE race = 'AfricanAmerican';
-- emergencies_of_black_patients: African American patients have a higher rate of emergency visits than other groups. [fairlearn]
SELECT AVG(CAST(number_emergency <> '0' AS INT)) FILTER (race = 'AfricanAmerican') - AVG(CAST(number_emergency <> '0' AS INT)) FILTER (race <> 'AfricanAmerican') FROM rows;
-- other_groups_return_less: Early readmission is rarer in the other groups than among Caucasian and African American patients. [fairlearn]
SELECT AVG(CAST(readmitted = '<30' AS INT)) FILTER (race IN ('Caucasian', 'AfricanAmerican')) - AVG(CAST(readmitted = '<30' AS INT)) FILTER (race IN ('Asian', 'Hispanic', 'Other')) FROM rows;
-- patients_are_over_sixty: Most patients are older than 60. [fairlearn]
SELECT AVG(CAST(age IN ('[60-70)', '[70-80)', '[80-90)', '[90-100)') AS INT)) - 0.5 FROM rows;
-- earlier_stays_and_readmission: The number of earlier inpatient stays has a positive effect on readmission. [sas]
SELECT CORR(CAST(number_inpatient AS INT), CAST(readmitted <> 'NO' AS INT)) FROM rows;
-- earlier_emergencies_and_readmission: So has the number of earlier emergencies. [sas]
SELECT CORR(CAST(number_emergency AS INT), CAST(readmitted <> 'NO' AS INT)) FROM rows;
