package cli

import (
	"fmt"
	"os"
	"strings"

	"github.com/workwire/workwire/controlplane/internal/plane"
)

// datastore returns the URL of the database in file, "" without a file. Errors do not have the URL, which may have a password.
func datastore(file string) (string, error) {
	if file == "" {
		return "", nil
	}
	data, err := os.ReadFile(file)
	if err != nil {
		return "", fmt.Errorf("--datastore-endpoint-file: %w", err)
	}
	endpoint := strings.TrimSpace(string(data))
	if endpoint == "" {
		return "", fmt.Errorf("--datastore-endpoint-file=%s is empty", file)
	}
	return endpoint, plane.CheckDatastore(endpoint)
}
