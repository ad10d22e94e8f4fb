// Package check is what the programs share: a configuration from KUBECONFIG, and one line for each thing that holds.
package check

import (
	"fmt"
	"os"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// Config reads the file that KUBECONFIG names.
func Config() *rest.Config {
	config, err := clientcmd.BuildConfigFromFlags("", os.Getenv("KUBECONFIG"))
	Must(err)
	return config
}

// Must ends the program on an error.
func Must(err error) {
	if err != nil {
		fmt.Printf("FAIL unexpected: %v\n", err)
		os.Exit(1)
	}
}

// That prints whether something holds, and ends the program when it does not.
func That(name string, holds bool, got any) {
	if !holds {
		fmt.Printf("FAIL %s: %v\n", name, got)
		os.Exit(1)
	}
	fmt.Println("ok", name)
}
