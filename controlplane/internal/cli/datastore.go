package cli

import (
	"errors"
	"fmt"
	"net/url"
	"os"
	"strings"

	"github.com/workwire/workwire/controlplane/internal/plane"
)

// datastoreEnv is the environment variable with the URL of the database.
const datastoreEnv = "CONTROLPLANE_DATASTORE_ENDPOINT"

// datastore returns the URL of the database that a flag, a file or a variable names, empty if none does.
// Errors do not have the URL, which may have a password.
func datastore(flag, file, variable string) (string, error) {
	endpoint := flag
	switch {
	case flag != "" && file != "":
		return "", errors.New("--datastore-endpoint and --datastore-endpoint-file exclude each other")
	case flag != "":
		if hasPassword(flag) {
			return "", errors.New("--datastore-endpoint must have no password, which lists of processes would show: " +
				"write the URL to a file that only its owner can read, and name it with --datastore-endpoint-file")
		}
	case file != "":
		data, err := os.ReadFile(file)
		if err != nil {
			return "", fmt.Errorf("--datastore-endpoint-file: %w", err)
		}
		if endpoint = strings.TrimSpace(string(data)); endpoint == "" {
			return "", fmt.Errorf("--datastore-endpoint-file=%s is empty", file)
		}
	default:
		if endpoint = strings.TrimSpace(variable); endpoint == "" {
			return "", nil
		}
	}
	return endpoint, plane.CheckDatastore(endpoint)
}

// hasPassword reports whether a URL has a password, or may have one that cannot be found.
func hasPassword(endpoint string) bool {
	u, err := url.Parse(endpoint)
	if err != nil {
		return true
	}
	_, has := u.User.Password()
	return has
}
