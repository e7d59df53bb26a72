package delivery

import (
	"github.com/workwire/workwire/pkg/security/audit"
	"github.com/workwire/workwire/pkg/transport"
	"github.com/workwire/workwire/pkg/wire"
)

// auditPublished records a publish, unless it failed and is repeated.
func (e *Engine) auditPublished(spec *wire.Spec, result, contentHash string) {
	verdict := map[string]string{"ok": "sent", "refused": "refused"}[result]
	if verdict == "" {
		return
	}
	if spec.IsDeletion() && verdict == "sent" {
		verdict = "deletion"
	}
	topic, _ := e.topics.Specs(spec.Cluster) // a refused name has none
	e.config.Audit.Write(audit.Record{
		Event: audit.Publish, Verdict: verdict, Topic: topic, Source: e.config.Source, Cluster: spec.Cluster,
		Work: spec.Meta.Name, UID: spec.UID, Generation: spec.Generation, Digest: contentHash,
	})
}

// auditReceived records the verdict on a message, and its reason, which may be empty; status is nil
// for others.
func (e *Engine) auditReceived(m transport.Message, from sender, v verdict, status *wire.Status, reason string) {
	r := audit.Record{
		Event: audit.Receive, Verdict: string(v), Effect: v == accepted, Reason: reason, Identity: string(from.cluster), Topic: m.Topic, Source: e.config.Source, Cluster: from.cluster,
	}
	if status != nil {
		r.Work, r.UID, r.Generation = status.Meta.Name, status.UID, status.Generation
	}
	e.config.Audit.Write(r)
}
