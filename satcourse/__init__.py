"""What only the course needs: exercises that check themselves, widgets and drawings, small worlds
for single notebooks, the demo.

Imports satlib; satlib never imports it.
"""
