package session

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/workwire/workwire/pkg/wire"
)

func probeAnswer(source wire.SourceID, uid types.UID) *wire.Spec {
	now := metav1.Now()
	return &wire.Spec{UID: uid, Source: source, Cluster: "cluster1", DeletionTimestamp: &now}
}

// TestQuestionsAreRepeated: each question is repeated, with growing pauses, until its own answer.
func TestQuestionsAreRepeated(t *testing.T) {
	s := newResyncTracker()
	now := time.Now()
	if again, wait := s.repeat("hub1", time.Minute, now); again || wait != 0 || s.isOpen("hub1") {
		t.Fatal("a source that was not asked is asked again")
	}
	s.open("hub1", now)
	former := s.probeOf("hub1")[0].UID
	s.open("hub1", now)
	probe := s.probeOf("hub1")[0].UID
	if probe == former || s.answeredBy("hub1") || s.answeredBy("") {
		t.Fatalf("probes %s and %s, or answered already", former, probe)
	}
	if s.isOverdue("hub1", time.Minute, now.Add(time.Minute)) || !s.isOverdue("hub1", time.Minute, now.Add(time.Minute+1)) || s.isOverdue("hub2", time.Minute, now.Add(time.Hour)) {
		t.Error("a question is overdue at another time than after a minute")
	}
	if again, wait := s.repeat("hub1", time.Minute, now); again || wait != time.Minute {
		t.Errorf("a source that was just asked is asked again: %t, %v", again, wait)
	}
	waited := time.Duration(0)
	for range 12 {
		now = now.Add(maxRetryInterval)
		again, wait := s.repeat("hub1", time.Minute, now)
		if !again || wait < waited || wait > maxRetryInterval {
			t.Errorf("again %t, and then after %v, after a wait of %v", again, wait, waited)
		}
		waited = wait
		if s.probeOf("hub1")[0].UID != probe {
			t.Error("the repeated question has another probe")
		}
	}
	if answer := probeAnswer("hub1", former); !s.isProbe(answer) || !s.noteAnswer(answer) || !s.isOpen("hub1") || !s.answeredBy("hub1") {
		t.Error("the answer to a former question closed this one, or did not count")
	}
	if s.isProbe(probeAnswer("hub1", "work")) {
		t.Error("the deletion of a work is an answer")
	}
	if answer := probeAnswer("hub1", probe); !s.isProbe(answer) || s.noteAnswer(answer) || s.isOpen("hub1") || s.probeOf("hub1") != nil {
		t.Error("the answer did not close the question")
	}
	if again, wait := s.repeat("hub1", time.Minute, now.Add(time.Hour)); again || wait != 0 {
		t.Error("an answered question is repeated")
	}
	s.open("", now)
	if !s.noteAnswer(probeAnswer("hub2", s.probeOf("")[0].UID)) || s.isOpen("") {
		t.Error("the answer of any source did not close the question to all")
	}
}
