"""What somebody who sees a client's messages, or its model, can find out about its examples."""
