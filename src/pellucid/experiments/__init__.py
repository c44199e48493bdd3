"""Many runs that answer one question: plan, processes, results, figures, report."""
