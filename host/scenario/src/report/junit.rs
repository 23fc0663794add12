//! Results as JUnit XML, for continuous integration: a suite for each arm.

use quick_junit::{NonSuccessKind, Report, SerializeError, TestCase, TestCaseStatus, TestSuite};

use crate::program::Arm;
use crate::report::{CaseResult, Results};
use crate::run::Verdict;

impl Results {
    /// The class name of a test case is the file, its name the case, or the title where there is no matrix.
    pub fn junit(&self) -> Result<String, SerializeError> {
        let mut report = Report::new("gpupv scenario");
        for arm in Arm::ALL {
            let results: Vec<&CaseResult> = self.cases.iter().filter(|result| result.arm == arm).collect();
            if results.is_empty() {
                continue;
            }
            let mut suite = TestSuite::new(arm.name());
            suite.set_time(results.iter().map(|result| result.duration).sum());
            suite.add_test_cases(results.into_iter().map(test_case));
            report.add_test_suite(suite);
        }
        report.to_string()
    }
}

fn test_case(result: &CaseResult) -> TestCase {
    let status = match &result.verdict {
        Verdict::Passed => TestCaseStatus::success(),
        Verdict::Failed(failure) => {
            let mut status = TestCaseStatus::non_success(NonSuccessKind::Failure);
            status.set_message(format!("{}: {}", result.place(failure.line), failure.what));
            if let Some(source) = &result.source {
                status.set_description(format!("{} | {source}", failure.line));
            }
            status
        }
        Verdict::Skipped(reason) => {
            let mut status = TestCaseStatus::skipped();
            status.set_message(reason.as_str());
            status
        }
    };
    let name = if result.case.is_empty() { &result.title } else { &result.case };
    let mut test = TestCase::new(name.as_str(), status);
    test.set_classname(result.file.as_str());
    test.set_time(result.duration);
    if !result.unchecked.is_empty() {
        let lines = result.unchecked.iter();
        let lines = lines.map(|(line, reason)| format!("{} not checked: {reason}\n", result.place(*line)));
        test.set_system_out(lines.collect::<String>());
    }
    test
}
