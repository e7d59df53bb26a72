package enrolment_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/workwire/workwire/pkg/security/enrolment"
)

func TestIssued(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	issued := func(serial, authority string, hours int) enrolment.Issued {
		return enrolment.Issued{Serial: serial, Authority: authority, Expires: now.Add(time.Duration(hours) * time.Hour)}
	}
	list := []enrolment.Issued{issued("1", "a", -1), issued("2", "a", 1)}
	text, added := enrolment.Note(list, issued("3", "b", 2), now)
	next := enrolment.ParseIssued(text)
	if diff := cmp.Diff([]enrolment.Issued{issued("2", "a", 1), issued("3", "b", 2)}, next); diff != "" || !added {
		t.Errorf("added %v (-want +got):\n%s", added, diff)
	}
	if again, added := enrolment.Note(next, issued("3", "b", 2), now); added || again != text {
		t.Errorf("noted again: %v, %s", added, again)
	}
	if n := len(enrolment.Unexpired(list, now)); n != 1 {
		t.Errorf("%d are valid, want 1", n)
	}
	if got := enrolment.ParseIssued("{"); got != nil {
		t.Errorf("what cannot be read has %v", got)
	}
	of := enrolment.Of("hub", []enrolment.Issued{{Source: "hub", Serial: "1"}, {Source: "other", Serial: "2"}, {Serial: "3"}})
	if diff := cmp.Diff([]enrolment.Issued{{Source: "hub", Serial: "1"}, {Serial: "3"}}, of); diff != "" {
		t.Errorf("of one hub (-want +got):\n%s", diff)
	}
	for what, c := range map[string]struct {
		list []enrolment.Issued
		want bool
	}{
		"none":        {nil, false},
		"of another":  {[]enrolment.Issued{issued("1", "a", 1)}, true},
		"expired":     {[]enrolment.Issued{issued("1", "a", -1)}, false},
		"renewed":     {next, false},
		"an older CA": {[]enrolment.Issued{issued("1", "b", 1), issued("2", "a", 2)}, true},
	} {
		if got := enrolment.Behind(c.list, "b", now); got != c.want {
			t.Errorf("%s: behind is %v", what, got)
		}
	}
}

func TestDecideRevoked(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	valid, expired := now.Add(time.Hour), now.Add(-time.Hour)
	one := enrolment.RevokedCertificate{Cluster: "berlin", Serial: "1", Expires: valid}
	holder := func(revoked bool, serials ...string) []enrolment.Holder {
		h := enrolment.Holder{Name: "berlin", Revoked: revoked}
		for _, serial := range serials {
			h.Issued = append(h.Issued, enrolment.Issued{Serial: serial, Expires: valid})
		}
		return []enrolment.Holder{h}
	}
	revoked := []enrolment.RevokedCertificate{one}
	for what, c := range map[string]struct {
		before  []enrolment.RevokedCertificate
		holders []enrolment.Holder
		want    []enrolment.RevokedCertificate
	}{
		"nothing":                         {nil, holder(false, "1"), nil},
		"the cluster is revoked":          {nil, holder(true, "1"), revoked},
		"it is revoked as before":         {revoked, holder(true, "1"), revoked},
		"it has another certificate":      {revoked, holder(true, "1", "2"), append(revoked[:1:1], enrolment.RevokedCertificate{Cluster: "berlin", Serial: "2", Expires: valid})},
		"it is let in again":              {revoked, holder(false, "1"), nil},
		"it is gone":                      {revoked, nil, revoked},
		"another device has its name":     {revoked, holder(false, "3"), revoked},
		"another one, that is revoked":    {revoked, holder(true, "3"), append(revoked[:1:1], enrolment.RevokedCertificate{Cluster: "berlin", Serial: "3", Expires: valid})},
		"its certificate has expired":     {[]enrolment.RevokedCertificate{{Cluster: "berlin", Serial: "1", Expires: expired}}, nil, nil},
		"an expired one of a revoked one": {nil, []enrolment.Holder{{Name: "x", Revoked: true, Issued: []enrolment.Issued{{Serial: "1", Expires: expired}}}}, nil},
	} {
		if diff := cmp.Diff(c.want, enrolment.DecideRevoked(c.before, c.holders, now)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", what, diff)
		}
	}
}
