package dryrun

import (
	"github.com/workwire/workwire/pkg/security/audit"
	"github.com/workwire/workwire/pkg/wire"
)

// record writes to the audit log who has asked about which work, and what became of the question: a word, of
// which the metric has the number, too.
func (r *Runner) record(question *wire.DryRun, result, reason string) {
	r.runs.WithLabelValues(result).Inc()
	record := r.recordOf(question)
	record.Verdict, record.Reason = result, reason
	r.config.Audit.Write(record)
}

// recordObjects writes what the answer tells of which objects, without their values. account is the executor,
// empty for none.
func (r *Runner) recordObjects(question *wire.DryRun, generation wire.Generation, account string, objects []wire.DryRunObject, names []string) {
	for i := range objects {
		record := r.recordOf(question)
		record.Verdict, record.Generation, record.Object = string(objects[i].Result), generation, names[i]
		if account != "" {
			record.Identity = account
		}
		r.config.Audit.Write(record)
	}
}

func (r *Runner) recordOf(question *wire.DryRun) audit.Record {
	return audit.Record{
		Event: audit.DryRun, Identity: string(question.Source), Source: question.Source, Cluster: r.config.Cluster, Work: question.Work,
	}
}
