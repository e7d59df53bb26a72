package session

import (
	"testing"
	"time"
)

func TestSilentSourceIsAskedAgain(t *testing.T) {
	s := newResyncTracker()
	now := time.Now()
	if len(s.noteRequest("hub1")) != 1 || s.answeredBy("hub1") || s.answeredBy("") {
		t.Fatal("the first request has no probe, or was answered")
	}
	if left := s.retryAfter("hub1", time.Minute, now); left <= 0 {
		t.Error("a source that was just asked is asked again at once")
	}
	waited := time.Duration(0)
	for range 12 {
		now = now.Add(maxRetryInterval + time.Second)
		if left := s.retryAfter("hub1", time.Minute, now); left != 0 {
			t.Errorf("after the longest wait %v is left", left)
		}
		left := s.retryAfter("hub1", time.Minute, now)
		if left < waited || left > maxRetryInterval {
			t.Errorf("a wait of %v after one of %v", left, waited)
		}
		waited = left
	}
}
