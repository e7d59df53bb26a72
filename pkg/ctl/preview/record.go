package preview

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/workwire/workwire/pkg/hub/previews"
)

// Record returns what the set remembers of the results. by is the user. Clusters that are not accepted do not count: they get no
// works.
func (p *Plan) Record(by string, now time.Time) previews.Record {
	record := previews.Record{Template: p.hash, Overrides: previews.OverridesHash(p.overrides), Time: metav1.NewTime(now.UTC()), By: by}
	for i := range p.Results {
		r := &p.Results[i]
		switch r.State {
		case NotAccepted:
			continue
		case Away:
			record.Away++
		case Failed:
			record.Failed++
		case Answered:
			record.Answered++
			n := count(r.Objects)
			record.Changed, record.Deleted = max(record.Changed, n.changed), max(record.Deleted, n.deleted)
			if n.refused > 0 {
				record.Refused++
			}
		}
		record.Clusters++
		if r.asked {
			record.Asked++
		}
	}
	return record
}

// Held returns why clusters would not get the template yet if the set had a record; empty if they would.
func (p *Plan) Held(record *previews.Record) (string, error) {
	value, err := record.Value()
	if err != nil {
		return "", err
	}
	return previews.Held(p.annotatedWith(value), previews.Subject{
		Namespace: p.Set.Namespace, Name: p.Set.Name, Revision: p.Revision, Template: p.hash, Overrides: record.Overrides,
	}), nil
}
