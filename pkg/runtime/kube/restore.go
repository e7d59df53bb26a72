package kube

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/url"
	"strconv"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
)

// NoticeRestore makes the watches of config's clients begin with a new list after the API server
// was restored from a backup. Its resource versions have gone back then, and a watch that goes on
// from one that is yet to come says nothing until that is reached. A watch from a resource version
// costs one request more: a list of one object at most. Call it once, before clients are made.
func NoticeRestore(config *rest.Config) {
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(request *http.Request) (*http.Response, error) {
			from, ok := watchedFrom(request)
			if !ok {
				return next.RoundTrip(request)
			}
			current, response, err := currentVersion(next, request)
			if err != nil || response != nil {
				return response, err
			}
			if current >= from {
				return next.RoundTrip(request)
			}
			return expired(request, from, current)
		})
	})
}

// watchedFrom returns the resource version that a watch begins at. ok is false for other requests,
// and for watches from any resource version.
func watchedFrom(request *http.Request) (version uint64, ok bool) {
	if verb, _ := Describe(request); verb != "watch" {
		return 0, false
	}
	version, err := strconv.ParseUint(request.URL.Query().Get("resourceVersion"), 10, 64)
	return version, err == nil && version > 0
}

// currentVersion returns the resource version that the API server has for what watch watches, or
// the response that says why it has none. A version that cannot be compared is later than any.
func currentVersion(next http.RoundTripper, watch *http.Request) (uint64, *http.Response, error) {
	list := watch.Clone(watch.Context())
	query := url.Values{"limit": {"1"}}
	for _, selector := range []string{"labelSelector", "fieldSelector"} { // some may list no more than that
		if value := watch.URL.Query().Get(selector); value != "" {
			query.Set(selector, value)
		}
	}
	list.URL.RawQuery = query.Encode()
	list.Header.Set("Accept", "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json")
	response, err := next.RoundTrip(list)
	if err != nil || response.StatusCode != http.StatusOK {
		return 0, response, err
	}
	defer func() { _ = response.Body.Close() }()
	var found struct {
		Metadata metav1.ListMeta `json:"metadata"`
	}
	if err := json.NewDecoder(response.Body).Decode(&found); err != nil {
		return 0, nil, fmt.Errorf("decode the list before a watch: %w", err)
	}
	current, err := strconv.ParseUint(found.Metadata.ResourceVersion, 10, 64)
	if err != nil {
		return math.MaxUint64, nil, nil
	}
	return current, nil, nil
}

// expired returns the response to a watch whose resource version is no longer available.
func expired(request *http.Request, from, current uint64) (*http.Response, error) {
	status := metav1.Status{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"},
		Status:   metav1.StatusFailure, Code: http.StatusGone, Reason: metav1.StatusReasonExpired,
		Message: fmt.Sprintf("resource version %d is yet to come, the API server is at %d: it was restored from a backup", from, current),
	}
	body, err := json.Marshal(status)
	if err != nil {
		return nil, fmt.Errorf("encode a status: %w", err)
	}
	return &http.Response{
		Status: http.StatusText(http.StatusGone), StatusCode: http.StatusGone, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: http.Header{"Content-Type": {"application/json"}}, ContentLength: int64(len(body)),
		Body: io.NopCloser(bytes.NewReader(body)), Request: request,
	}, nil
}
