"""The record: audit log, sinks, proofs, evidence, reports."""
