"""HOW IT IS SHOWN: pictures, report, tables, InferenceData, R."""
