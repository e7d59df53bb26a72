package main

import (
	"encoding/json"
	"net/http"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
)

// Times of a stream of events.
const (
	aliveInterval = 15 * time.Second // between comments that keep proxies from ending an idle stream
	writeTimeout  = 30 * time.Second // for a reader that does not read
)

// watch sends changes as server-sent events: the type of the change as event, the work as data, and
// its resourceVersion as id, so that a browser that connects again goes on after the last one it had.
func (a *api) watch(w http.ResponseWriter, r *http.Request) error {
	query := r.URL.Query()
	options := metav1.ListOptions{
		LabelSelector: query.Get("labelSelector"), ResourceVersion: query.Get("resourceVersion"), AllowWatchBookmarks: true,
	}
	if last := r.Header.Get("Last-Event-ID"); last != "" {
		options.ResourceVersion = last
	}
	changes, err := a.client.ManifestWorks(query.Get("cluster")).Watch(r.Context(), options)
	if err != nil {
		return err
	}
	defer changes.Stop()
	stream := http.NewResponseController(w)
	_ = stream.SetReadDeadline(time.Time{}) // the one for reading requests would end the stream
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("Cache-Control", "no-store")
	send := func(text []byte) bool {
		_ = stream.SetWriteDeadline(time.Now().Add(writeTimeout))
		_, err := w.Write(text)
		return err == nil && stream.Flush() == nil
	}
	alive := time.NewTicker(aliveInterval)
	defer alive.Stop()
	for ok := send([]byte(": the changes follow\n\n")); ok; {
		select {
		case change, open := <-changes.ResultChan():
			ok = open && send(eventOf(change)) && change.Type != watch.Error
		case <-alive.C:
			ok = send([]byte(": alive\n\n"))
		}
	}
	return nil
}

// eventOf returns a change as a server-sent event. JSON has no line breaks.
func eventOf(change watch.Event) []byte {
	data, err := json.Marshal(change.Object)
	if err != nil {
		data = []byte("{}")
	}
	var text []byte
	if accessor, err := meta.Accessor(change.Object); err == nil {
		text = append(text, "id: "+accessor.GetResourceVersion()+"\n"...)
	}
	text = append(text, "event: "+string(change.Type)+"\ndata: "...)
	return append(append(text, data...), "\n\n"...)
}
