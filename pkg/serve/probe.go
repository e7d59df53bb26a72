package serve

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"strings"
)

// maxProbeAnswer is how many bytes of an answer a probe reads.
const maxProbeAnswer = 4096

// Probe asks url, a listener's /readyz or /healthz, and returns nil when the answer is
// 200. Otherwise the error says what the listener answered, or that it does not. Like the
// kubelet's probes it takes any certificate: nothing is sent that a stranger may not see.
func Probe(ctx context.Context, url string) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	client := http.Client{Transport: &http.Transport{
		DisableKeepAlives: true,
		TLSClientConfig:   &tls.Config{InsecureSkipVerify: true}, //nolint:gosec // see above
	}}
	response, err := client.Do(request)
	if err != nil {
		return err // names method and URL
	}
	defer func() { _ = response.Body.Close() }()
	answer, err := io.ReadAll(io.LimitReader(response.Body, maxProbeAnswer))
	if err != nil {
		return fmt.Errorf("read the answer of %s: %w", url, err)
	}
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("%s answers %d:\n%s", url, response.StatusCode, strings.TrimSpace(string(answer)))
	}
	return nil
}
